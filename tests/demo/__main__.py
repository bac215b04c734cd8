"""`python -m tests.demo local|yarn|versions`: the example DAG, run by a real Airflow, and what was seen of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.demo.airflow import DemoFailed

VERSIONS = ("2.10.2", "3.1.4", "3.2.4", "3.3.6", "3.4.2", "3.5.0")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("where", choices=["local", "yarn", "versions"])
    parser.add_argument("--version", default="3.4.2", help="of Hadoop, for yarn (%(default)s)")
    parser.add_argument("--versions", default=",".join(VERSIONS), help="of Hadoop, for versions (%(default)s)")
    parser.add_argument(
        "--home", type=Path, help="of the Airflow and its jobs, for local (a folder of this repository)"
    )
    arguments = parser.parse_args()
    try:
        if arguments.where == "local":
            from tests.demo import local

            local.run(arguments.home or local.HOME)
            return 0
        # Needs what the tests need, which `local` must not.
        from tests.demo import versions

        if arguments.where == "versions":
            return versions.run_all(arguments.versions.split(","), versions.ROWS)
        return versions.run_all([arguments.version])
    except DemoFailed as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
