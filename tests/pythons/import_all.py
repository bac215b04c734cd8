"""Imports every module below a package, on whatever Python runs this: ``import_all.py PACKAGE``. Prints how many.

Uses the oldest Python's words only, and the standard library.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

_PROGRAMS = ("sitecustomize", "__main__", "show_tensorboard", "launch.prepare", "launch.start")  # an import runs them
LEFT_OUT = (*_PROGRAMS, "sdk.tony_mpi")  # which has its neighbours on the path in a job


def import_all(package: str) -> int:
    found = importlib.import_module(package)
    names = [module.name for module in pkgutil.walk_packages(found.__path__, package + ".")]
    wanted = [name for name in names if not name.endswith(LEFT_OUT)]
    for name in wanted:
        importlib.import_module(name)
    return len(wanted)


if __name__ == "__main__":
    print(import_all(sys.argv[1]), "modules of", sys.argv[1])
