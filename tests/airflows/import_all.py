"""``python -m tests.airflows.import_all``: imports every module of the provider on the Airflow that this Python has."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import tony_provider
from tests.pythons.import_all import LEFT_OUT
from tony_provider.compat import AirflowTooOld


def main() -> int:
    """The exit code: 1 where one cannot be imported for any other reason than that this Airflow is too old for it."""
    imported, too_old = 0, 0
    for module in pkgutil.walk_packages(tony_provider.__path__, "tony_provider."):
        if module.name.endswith(LEFT_OUT):
            continue
        try:
            importlib.import_module(module.name)
        except AirflowTooOld:
            too_old += 1
        except Exception as error:  # noqa: BLE001 - it is told
            print(f"{module.name}: {type(error).__name__}: {error}")
            return 1
        else:
            imported += 1
    print(f"{imported} modules imported; {too_old} need a newer Airflow, and say so")
    return 0


if __name__ == "__main__":
    sys.exit(main())
