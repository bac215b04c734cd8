"""`python -m tests.e2e [row …]`: a whole Airflow and a real YARN, driven from outside; prints what was seen."""

from __future__ import annotations

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
from tests.e2e.table import TABLE
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
# Several applications at once, of a master and a worker each, whose cores the scheduler counts.
SETTINGS = Settings(node_vcores=8)
OUTPUT = REPOSITORY / "test-output" / "e2e"


def main() -> int:
    parser = named_rows.parser_of_rows("python -m tests.e2e", __doc__, REPOSITORY / ".tony" / "e2e")
    arguments = parser.parse_args()
    chosen = named_rows.asked_for(parser, arguments, in_order(), lambda row: f"{row.name:28} {row.act}")
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
    print(TABLE.header(), flush=True)
    outcomes = []
    for row in chosen:
        outcomes.append(run_one(row, Field(installation, OUTPUT / row.name)))
        print("\n".join(TABLE.lines_of(outcomes[-1])), flush=True)
    told = TABLE.summary(outcomes)
    (OUTPUT / "table.txt").write_text(f"{told}\n")
    print(f"\n{told}\n\nThis table, screenshots, and what is known of rows that failed, are in {OUTPUT}")
    return all(outcome.good for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
