"""``python -m tony_provider.cli …``: the same as ``airflow tony …``.

Also works with an Airflow that does not support commands of providers.
"""

from __future__ import annotations

import sys

from airflow.__main__ import main
from airflow.cli.cli_parser import ALL_COMMANDS_DICT

from tony_provider.cli.definition import get_tony_cli_commands


def run() -> None:
    """Run one of the commands like Airflow runs its own."""
    for command in get_tony_cli_commands():
        ALL_COMMANDS_DICT.setdefault(command.name, command)
    sys.argv[1:1] = ["tony"]
    main()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    run()
