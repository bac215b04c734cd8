"""`python -m tests.e2e [row …]`: a whole Airflow and a real YARN, driven from outside; prints what was seen."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tests import named_rows

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
from tests.e2e.airflow import AirflowError
from tests.e2e.field import Field
from tests.e2e.installation import Installation
from tests.e2e.row import Row
from tests.e2e.rows import in_order
from tests.e2e.running import run_one
from tests.e2e.table import header, lines_of, summary
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
# Several applications at once, of a master and a worker each, whose cores the scheduler counts.
SETTINGS = Settings(node_vcores=8)
OUTPUT = REPOSITORY / "test-output" / "e2e"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("rows", nargs="*", help="names of rows, their beginnings, or kinds of rows; default: all")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".tony" / "e2e", help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave cluster and Airflow running for the next call")
    arguments = parser.parse_args()
    chosen = named_rows.chosen(in_order(), arguments.rows)
    if not chosen:
        parser.error(f"no row is called so; there are {', '.join(row.name for row in in_order())}")
    if arguments.list:
        print("\n".join(f"{row.name:28} {row.act}" for row in chosen))
        return 0
    root = arguments.root.absolute()
    hadoop = HadoopCluster(root / "hadoop", SETTINGS)
    installation = None
    good = False
    try:
        hadoop.start()
        installation = Installation(root / "airflow", hadoop)
        installation.start()
        good = run_all(installation, chosen)
    except (ClusterError, AirflowError) as error:
        print(error, file=sys.stderr)
    finally:
        if not arguments.keep:
            if installation is not None:
                installation.stop()
            hadoop.stop()
            if good:
                shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


def run_all(installation: Installation, chosen: list[Row]) -> bool:
    """One after the other; each is told at once. Whether all passed. Raises AirflowError."""
    print(header(), flush=True)
    outcomes = []
    for row in chosen:
        outcomes.append(run_one(row, Field(installation, OUTPUT / row.name)))
        print("\n".join(lines_of(outcomes[-1])), flush=True)
    told = summary(outcomes)
    (OUTPUT / "table.txt").write_text(f"{told}\n")
    print(f"\n{told}\n\nThis table, screenshots, and what is known of rows that failed, are in {OUTPUT}")
    return all(outcome.good for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
