"""`python -m tests.secure [row …]`: attack a job on a shared Kerberos cluster, once per row; prints what happened."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tests import named_rows

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
import logging

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.secure.field import SETTINGS, SHORT_LIVED_SETTINGS, Field
from tests.secure.row import SHARED, SHORT_LIVED, Row
from tests.secure.rows import in_order
from tests.secure.running import run_one
from tests.secure.table import Outcome, header, lines_of, summary
from tests.secure.victim import Victim

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTERS = {SHARED: SETTINGS, SHORT_LIVED: SHORT_LIVED_SETTINGS}  # one after the other


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.secure", description=__doc__)
    parser.add_argument("rows", nargs="*", help="names of rows, their beginnings, or kinds of rows; default: all")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".tony" / "secure", help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the clusters running for the next call")
    arguments = parser.parse_args()
    rows = named_rows.chosen(in_order(), arguments.rows)
    if not rows:
        parser.error(f"no row is called so; there are {', '.join(row.name for row in in_order())}")
    if arguments.list:
        print("\n".join(f"{row.name:26} {row.by:16} {row.attempt}" for row in rows))
        return 0
    folder = arguments.root.absolute() / time.strftime("run-%Y%m%d-%H%M%S")
    logging.getLogger("requests_gssapi").setLevel(logging.CRITICAL)  # it calls each 404 an error
    print(header(), flush=True)
    outcomes: list[Outcome] = []
    try:
        for name in CLUSTERS:
            outcomes += run_on(name, arguments.root.absolute(), folder, rows, keep=arguments.keep)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    told = summary(outcomes)
    (folder / "table.txt").write_text(f"{told}\n")
    print(f"\n{told}\n\nThis table, and what is known of rows that failed, is in {folder}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def run_on(name: str, root: Path, folder: Path, rows: list[Row], *, keep: bool) -> list[Outcome]:
    """The rows of one cluster, one after the other; each is told at once. Raises ClusterError."""
    outcomes: list[Outcome] = []
    chosen = [row for row in rows if row.cluster == name]
    if not chosen:
        return []
    hadoop = HadoopCluster(root / name, CLUSTERS[name])
    standing: list[Victim] = []
    try:
        hadoop.start()
        for row in chosen:
            outcomes.append(run_one(row, Field(hadoop, folder / row.name, standing)))
            print("\n".join(lines_of(outcomes[-1])), flush=True)
        for victim in standing:
            problems = victim.finish()
            outcomes[-1].problems.extend(problems)
            print(f"The job that these rows attacked together: {problems or 'SUCCEEDED, and left nothing'}", flush=True)
    finally:
        for victim in standing:
            victim.place.close()
        if not keep:
            hadoop.stop()
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
