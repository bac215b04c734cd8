"""`python -m tests.faults [row …]`: hit a training once per row on a real cluster, and print what it cost."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tests import named_rows

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
from tests.faults.account import Account
from tests.faults.field import EVERY, SETTINGS, STEPS, Field
from tests.faults.row import COUNT, SERVED, TRAIN, Row
from tests.faults.rows import in_order
from tests.faults.table import TABLE, Outcome, outcome_of, summary
from tests.faults.weights import TOLERANCE, ReferenceFailed, References, difference
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.row_tables import run_row

REPOSITORY = Path(__file__).resolve().parents[2]
RESUME_AT = (20, 40)  # that a reference run is interrupted at, to show that it makes no difference


def main() -> int:
    parser = named_rows.parser_of_rows("python -m tests.faults", __doc__, REPOSITORY / ".tony" / "faults")
    parser.add_argument("--version", default=SETTINGS.version, help="of Hadoop (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="with the program without TensorFlow throughout")
    arguments = parser.parse_args()
    rows = in_order()
    if arguments.quick:
        rows = [dataclasses.replace(row, program=COUNT) if row.program == TRAIN else row for row in rows]
        rows = [row for row in rows if row.program != SERVED]
    chosen = named_rows.asked_for(parser, arguments, rows, lambda row: f"{row.name:28} {row.program:6} {row.fault}")
    folder = arguments.root.absolute() / time.strftime("run-%Y%m%d-%H%M%S")
    settings = dataclasses.replace(SETTINGS, version=arguments.version)
    hadoop = HadoopCluster(arguments.root.absolute() / "hadoop", settings)
    try:
        hadoop.start()
        outcomes = run_all(hadoop, folder, chosen)
    except (ClusterError, ReferenceFailed) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if not arguments.keep:
            hadoop.stop()
    told = summary(outcomes)
    (folder / "table.txt").write_text(f"{told}\n")
    print(f"\n{told}\n\nThis table, and what is known of jobs that failed, is in {folder}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def run_all(hadoop: HadoopCluster, folder: Path, chosen: list[Row]) -> list[Outcome]:
    """One after the other; each is told at once. Raises ReferenceFailed, ClusterError."""
    references = References(folder.parent / "references")
    if any(row.program == TRAIN for row in chosen):
        what = {"FAULTS_STEPS": str(STEPS), "FAULTS_EVERY": str(EVERY)}
        undisturbed = references.weights(TRAIN, what)
        by = difference(undisturbed, references.weights(TRAIN, what, RESUME_AT))
        print(
            f"An undisturbed run, and one that is interrupted after the steps {RESUME_AT}, differ by {by:g}", flush=True
        )
        if by > TOLERANCE:
            raise ReferenceFailed("the program's result depends on where it is interrupted: nothing can be compared")
    print(TABLE.header(), flush=True)
    outcomes = []
    for row in chosen:
        field = Field(hadoop, folder / row.name, program=row.program, references=references)
        outcomes.append(run_one(row, field))
        print("\n".join(TABLE.lines_of(outcomes[-1])), flush=True)
    return outcomes


def run_one(row: Row, field: Field) -> Outcome:
    """Raises ClusterError."""

    def run() -> Account:
        account = row.run(field)
        field.problems += account.problems
        return account

    account, seconds = run_row(field, run)
    return outcome_of(row, account, field.problems, seconds)


if __name__ == "__main__":
    sys.exit(main())
