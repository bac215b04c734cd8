"""`python -m tests.faults [row …]`: hit a training once per row on a real cluster, and print what it cost."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import traceback
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tests import named_rows

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
from tests.faults.account import Account
from tests.faults.field import EVERY, SETTINGS, STEPS, Field
from tests.faults.row import COUNT, SERVED, TRAIN, Row
from tests.faults.rows import in_order
from tests.faults.table import Outcome, header, lines_of, summary
from tests.faults.weights import TOLERANCE, ReferenceFailed, References, difference
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError

REPOSITORY = Path(__file__).resolve().parents[2]
RESUME_AT = (20, 40)  # that a reference run is interrupted at, to show that it makes no difference


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("rows", nargs="*", help="names of rows, their beginnings, or kinds of rows; default: all")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--quick", action="store_true", help="with the program without TensorFlow throughout")
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".tony" / "faults", help="(%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running for the next call")
    arguments = parser.parse_args()
    chosen = named_rows.chosen(in_order(), arguments.rows)
    if arguments.quick:
        chosen = [dataclasses.replace(row, program=COUNT) if row.program == TRAIN else row for row in chosen]
        chosen = [row for row in chosen if row.program != SERVED]
    if not chosen:
        parser.error(f"no row is called so; there are {', '.join(row.name for row in in_order())}")
    if arguments.list:
        print("\n".join(f"{row.name:28} {row.program:6} {row.fault}" for row in chosen))
        return 0
    folder = arguments.root.absolute() / time.strftime("run-%Y%m%d-%H%M%S")
    hadoop = HadoopCluster(arguments.root.absolute() / "hadoop", SETTINGS)
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
    print(header(), flush=True)
    outcomes = []
    for row in chosen:
        field = Field(hadoop, folder / row.name, program=row.program, references=references)
        outcomes.append(run_one(row, field))
        print("\n".join(lines_of(outcomes[-1])), flush=True)
    return outcomes


def run_one(row: Row, field: Field) -> Outcome:
    """Whatever a row raises is its verdict; what is known of its job lies in its folder then. Raises ClusterError."""
    begun = time.monotonic()
    try:
        account = row.run(field)
    except Exception as error:  # noqa: BLE001 - the other rows are to run
        account = Account(did="did not get to its end", problems=[f"{type(error).__name__}: {error}"])
        (field.folder / "error.txt").write_text(traceback.format_exc())
    if account.problems:
        for number, training in enumerate(field.trainings):
            (field.folder / f"job-{number}.txt").write_text(training.job.describe())
    field.mend()
    return Outcome(row, account, time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
