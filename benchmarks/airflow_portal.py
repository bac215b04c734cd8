"""`python -m benchmarks.airflow_portal`: how long the portal's pages wait for their answers, among 10,000 jobs.

The end points are asked through Airflow's own app, login and database (SQLite), with a summary of each job in it. Of
each are told the first answer, when this server has read no summary yet; and of the next ones in a row the median and
the 95th percentile. Beside them two of Airflow's own lists, of as many runs and task instances, with as many rows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

import attrs

from benchmarks import program
from benchmarks.hadoop import REPOSITORY
from benchmarks.report import OURS, Figure, Ratio, Report, Size, by_name

ROUNDS = 3
SUMMARIES = 10_000
ASKED = 20  # times in a row, in each round
AIRFLOW = "Airflow"
_LIST = "/jobs"
_AIRFLOWS_LIST = "task instances"
_MEDIAN, _NINETY_FIVE, _FIRST = "median", "95th percentile", "first"


@attrs.frozen
class Answers:
    """Of one end point, in seconds."""

    path: str
    who: str
    first: list[float]  # one for each round
    next: list[list[float]]  # those of each round


def measure(rounds: int = ROUNDS) -> Report:
    found = [figure for each in _answers(rounds) for figure in figures(each)]
    title = (
        f"The portal's end points and two lists of Airflow's own, among {SUMMARIES:,} jobs, in SQLite; "
        f"{rounds} rounds, {ASKED} times each"
    )
    return Report("airflow_portal", title, found, ratios(found))


def _answers(rounds: int) -> Iterator[Answers]:
    """By a process whose Airflow has been told where it lives before it is imported."""
    command = [sys.executable, "-m", "benchmarks.airflow_side.portal_answers", str(rounds), str(ASKED)]
    env = {**os.environ, "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield Answers(**json.loads(line))
            else:
                program.progress(line.rstrip())
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {process.returncode}")


def figures(answers: Answers) -> Iterator[Figure]:
    told = {
        _FIRST: answers.first,
        _MEDIAN: [statistics.median(each) for each in answers.next],
        _NINETY_FIVE: [statistics.quantiles(each, n=20, method="inclusive")[-1] for each in answers.next],
    }
    for which, values in told.items():
        yield Figure(f"{answers.path}: {which}", answers.who, "s", values, Size(SUMMARIES, "jobs"))


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    """The list of jobs to Airflow's list of task instances, of as many rows."""
    by, size = by_name(found), Size(SUMMARIES, "jobs")
    return [
        Ratio.between(by[f"{_LIST}: {which}, {size}", OURS], attrs.evolve(other, who=f"Airflow's {_AIRFLOWS_LIST}"))
        for which in (_FIRST, _MEDIAN, _NINETY_FIVE)
        for other in [by[f"{_AIRFLOWS_LIST}: {which}, {size}", AIRFLOW]]
    ]


def main() -> int:
    arguments = program.options(__doc__).parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
