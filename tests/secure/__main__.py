"""`python -m tests.secure [row …]`: attack jobs on shared Kerberos clusters, once per row; prints what happened."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests import airflow_home, named_rows  # the first names Airflow's home before anything imports Airflow

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
from tests.hadoop.daemons import ClusterError
from tests.hadoop.settings import DEFAULT_VERSION
from tests.secure.rows import in_order
from tests.secure.running import run_all
from tests.secure.table import TABLE

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = named_rows.parser_of_rows("python -m tests.secure", __doc__, REPOSITORY / ".tony" / "secure")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="of Hadoop (%(default)s)")
    arguments = parser.parse_args()
    rows = named_rows.asked_for(parser, arguments, in_order(), lambda row: f"{row.name:26} {row.by:16} {row.attempt}")
    root = arguments.root.absolute()
    folder = root / time.strftime("run-%Y%m%d-%H%M%S")
    print(TABLE.header(), flush=True)
    begun = time.monotonic()
    os.environ[airflow_home.SHARED] = str(airflow_home.HOME)  # with the processes that clusters have
    airflow_home.migrate()
    try:
        outcomes = run_all(root, folder, rows, version=arguments.version, keep=arguments.keep)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    minutes = (time.monotonic() - begun) / 60
    told = TABLE.summary(outcomes, f"Side by side the clusters took {minutes:.0f} minutes.")
    (folder / "table.txt").write_text(f"{told}\n")
    print(f"\n{told}\n\nThis table, and what is known of rows that failed, is in {folder}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
