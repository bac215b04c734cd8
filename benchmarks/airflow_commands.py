"""`python -m benchmarks.airflow_commands`: what `airflow tony …` takes, beside Airflow's own commands.

Each command is a process of its own, from its start to its end: seconds, those of a processor, and its memory. Those of
one job are asked of a real YARN, about one that has ended; Airflow's own are run with the provider and without it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from benchmarks import hadoop, program
from benchmarks.airflow_side.environment import WITHOUT, environment
from benchmarks.airflow_side.process_cost import Cost, figures, run
from benchmarks.airflow_side.turns import in_turns
from benchmarks.report import OURS, Figure, Ratio, Report, by_name
from tests.jobs.places import YarnPlace

ROUNDS = 3
_JOB = {"tasks": {"worker": {"command": "echo something", "memory": "128MiB"}}}
_VERSION = "airflow version"
_OF_AIRFLOW = ("version", "--help")


def measure(rounds: int = ROUNDS) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="tony-bench-") as name,
        hadoop.cluster("commands") as cluster,
        closing(YarnPlace(cluster=cluster)) as place,
        _ended_job(place) as application_id,
    ):
        measures = _commands(Path(name), json.dumps(place.connection), application_id)
        for command, one in measures.items():  # what a first run writes, and reads from a disk
            program.progress(command)
            one()
        costs = in_turns(measures, rounds)
    found = list(_figures(costs))
    title = f"Commands, each in a process of its own, {rounds} times; a real YARN, a job of one task that has ended"
    return Report("airflow_commands", title, found, ratios(found))


@contextmanager
def _ended_job(place: YarnPlace) -> Iterator[str]:
    """The id of its application, whose directory is removed at the end."""
    job = place.run(_JOB)
    try:
        yield job.id
    finally:
        job.hook.storage().remove(job.hook.layout.job_dir(job.identity), recursive=True)


def _commands(home: Path, connection: str, application_id: str) -> Mapping[str, Callable[[], Cost]]:
    """By what is typed; those of Airflow without the provider end in that."""

    def command(words: str, *, hidden: bool = False) -> Callable[[], Cost]:
        env = environment(home, hidden=hidden, AIRFLOW_CONN_TONY_DEFAULT=connection)
        return partial(run, [sys.executable, "-m", "airflow", *words.split()], env)

    ours = ("tony --help", "tony list", f"tony status {application_id}", f"tony logs {application_id}")
    return {
        **{f"airflow {words.removesuffix(application_id).rstrip()}": command(words) for words in (*_OF_AIRFLOW, *ours)},
        **{f"airflow {words} {WITHOUT}": command(words, hidden=True) for words in _OF_AIRFLOW},
    }


def _figures(costs: Mapping[str, Sequence[Cost]]) -> Iterator[Figure]:
    for name, each in costs.items():
        what = name.removesuffix(WITHOUT).rstrip()
        yield from figures(what, WITHOUT if name.endswith(WITHOUT) else OURS, each)


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    """Airflow's commands with the provider to those without; ours to the least that Airflow does."""
    by = by_name(found)
    least = by[f"{_VERSION}: processor", WITHOUT]
    pairs = [(each, by.get((each.name, WITHOUT), least)) for each in found if each.what.endswith(": processor")]
    return [
        Ratio(f"{ours.what}", f"{other.what.partition(':')[0]} {WITHOUT}", Ratio.between(ours, other).values)
        for ours, other in pairs
        if ours.who == OURS
    ]


def main() -> int:
    arguments = program.options(__doc__).parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
