"""`python -m benchmarks.triggerer`: 1,000 deferred trainings in one TriggerRunner of Airflow's, beside a naive poll.

The TriggerRunner is Airflow's own, in its own process, with its own way of handing over events; the cluster is a
stand-in, which answers at once and counts. Ours is one poller for all jobs; the naive one is a trigger that looks at
its own job every five seconds. Both look at steps and metrics, ours at what the leader prints too. Told are requests
per minute while nothing ends, the TriggerRunner's share of a processor meanwhile, the seconds from the end of an
application until Airflow has the event, and those of some through a whole Airflow until the task resumes; and its
memory with the triggers, less what it had before, beside that of Airflow's own trigger which only waits for a time: so
much costs any deferred task. A round is a part of one run: those that are compared are measured one after the other.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks import program, whole_airflow
from benchmarks.launchers.memory import Memory
from benchmarks.report import OURS, Figure, Ratio, Report, Size, by_name
from benchmarks.standin_cluster import StandInProcess, application_id, standin

if TYPE_CHECKING:
    from benchmarks.trigger_runner import Runner

TRIGGERS = 1000
ROUNDS = 2
BEFORE = 4.0  # seconds that a TriggerRunner has to begin
WARM_UP = 15.0  # seconds, once each job was looked at
STEADY = 15.0  # seconds, of each round
ENDS = 10  # applications that end in each round, one after the other
PAUSE = 0.5  # seconds between two of them
TIMEOUT = 300.0  # seconds until what is waited for is there
NAIVE = "naive poll"
WAITS = "only waits"
WHATS = {
    "requests": ("requests while nothing ends", "a minute"),
    "cpu": ("processor while nothing ends", "% of a core"),
    "median": ("end known, median", "s"),
    "late": ("end known, 95 of 100", "s"),
}
WHOLE = "Airflow task resumes, in a whole Airflow"
MEMORY = {"resident": "memory of the triggers, resident", "proportional": "memory of the triggers, proportional"}

Trigger = Callable[[str], tuple[str, dict[str, Any]]]  # of an application: its class and its arguments


@attrs.frozen
class Watched:
    """Of one round."""

    requests: float  # a minute
    kinds: dict[str, float]  # the same by kind
    cpu: float  # percent of one processor
    memory: Memory  # that the triggers take
    latencies: list[float]  # seconds

    @property
    def median(self) -> float:
        return statistics.median(self.latencies)

    @property
    def late(self) -> float:
        """Within which 95 of 100 are known."""
        return sorted(self.latencies)[math.ceil(0.95 * len(self.latencies)) - 1]


def measure(triggers: int = TRIGGERS, rounds: int = ROUNDS, tasks: int = whole_airflow.TASKS) -> Report:
    """``tasks`` through a whole Airflow."""
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as home:
        # Before anything imports Airflow.
        os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        os.environ |= {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(Path(home) / "logs")}
        os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING"}  # not a line for each trigger that starts
        found = {
            OURS: list(watched(ours, "lists", 2, triggers, rounds)),
            NAIVE: list(watched(naive, "applications", triggers, triggers, rounds)),
        }
        size = Size(triggers, "jobs")
        figures = list(_figures(found, size))
        held = {who: [one.memory for one in each] for who, each in found.items()} | {WAITS: waiting(triggers, rounds)}
        figures += _memories(held, size)
        if tasks:
            with standin(tasks) as cluster:
                latencies = whole_airflow.latencies(Path(home) / "whole", cluster, tasks)
            figures.append(Figure(WHOLE, OURS, "s", [statistics.median(part) for part in parts(latencies, rounds)]))
    title = f"{triggers:,} deferred trainings in one TriggerRunner, a stand-in for the cluster"
    return Report("triggerer", title, figures, ratios(figures))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--triggers", type=int, default=TRIGGERS, help="deferred trainings (%(default)s)")
    parser.add_argument("--tasks", type=int, default=whole_airflow.TASKS, help="in a whole Airflow (%(default)s)")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.triggers, arguments.rounds or ROUNDS, arguments.tasks), arguments.output)


def ours(name: str) -> tuple[str, dict[str, Any]]:
    from benchmarks.job_trigger import trigger_of

    return trigger_of(name).serialize()


def naive(name: str) -> tuple[str, dict[str, Any]]:
    from benchmarks.naive_trigger import NaiveTrigger

    return NaiveTrigger(application_id=name, poll_interval=5.0).serialize()


def watched(make: Trigger, kind: str, asked: int, triggers: int, rounds: int) -> Iterator[Watched]:
    """Each job was looked at once the cluster was asked so often for this kind."""
    from benchmarks.trigger_runner import Runner

    with standin(triggers) as cluster:
        os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(cluster.connection)
        runner = Runner.started(triggers)
        try:
            before = _filled(runner, make, triggers)
            _until(lambda: cluster.ask("/counts").get(kind, 0) >= asked, runner)
            runner.run_for(WARM_UP)
            ending = parts(
                [application_id(number * triggers // (ENDS * rounds)) for number in range(ENDS * rounds)], rounds
            )
            for names in ending:
                yield _round(runner, cluster, names, before)
                program.progress(f"{make.__name__}: a round of {rounds} is done")
        finally:
            runner.end()


def waiting(triggers: int, rounds: int) -> list[Memory]:
    """What as many of Airflow's own triggers take, which only wait."""
    from benchmarks.trigger_runner import Runner

    def waits(_: str) -> tuple[str, dict[str, Any]]:
        from airflow.providers.standard.triggers.temporal import DateTimeTrigger

        return DateTimeTrigger(moment=datetime.now(UTC) + timedelta(days=1)).serialize()

    runner = Runner.started(triggers)
    try:
        before = _filled(runner, waits, triggers)
        found = []
        for _ in range(rounds):
            runner.run_for(WARM_UP / rounds)
            found.append(Memory.of([runner.pid]).beyond(before))
    finally:
        runner.end()
    return found


def _filled(runner: Runner, make: Trigger, triggers: int) -> Memory:
    """Give it the triggers; returns its memory before."""
    runner.run_for(BEFORE)
    before = Memory.of([runner.pid])
    for number in range(triggers):
        runner.add(application_id(number), make(application_id(number)))
    return before


def _round(runner: Runner, cluster: StandInProcess, names: Sequence[str], memory_before: Memory) -> Watched:
    before, cpu, began = cluster.ask("/counts"), runner.cpu_seconds, time.monotonic()
    runner.run_for(STEADY)
    seconds = time.monotonic() - began
    after, used = cluster.ask("/counts"), runner.cpu_seconds - cpu
    memory = Memory.of([runner.pid]).beyond(memory_before)
    ended: dict[str, float] = {}
    for name in names:
        ended[name] = time.monotonic()
        cluster.ask(f"/finish/{name}")
        runner.run_for(PAUSE)
    _until(lambda: ended.keys() <= runner.seen.keys(), runner)
    kinds = {kind: (count - before.get(kind, 0)) * 60 / seconds for kind, count in after.items()}
    latencies = [runner.seen[name] - at for name, at in ended.items()]
    return Watched(sum(kinds.values()), kinds, 100 * used / seconds, memory, latencies)


def _until(reached: Callable[[], bool], runner: Runner) -> None:
    """The runner goes on meanwhile: it needs this process."""
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        if runner.problems or time.monotonic() > deadline:
            raise RuntimeError(f"not within {TIMEOUT:g} s; {runner.problems[:1] or 'no trigger has failed'}")
        runner.run_for(PAUSE)


def parts(values: Sequence[Any], number: int) -> list[list[Any]]:
    """So many, one after the other, each as long as the others but for one more."""
    ends = [len(values) * each // number for each in range(number + 1)]
    return [list(values[begin:end]) for begin, end in pairwise(ends)]


def _figures(found: dict[str, list[Watched]], size: Size) -> Iterator[Figure]:
    for who, rounds in found.items():
        for each, (what, unit) in WHATS.items():
            yield Figure(what, who, unit, [getattr(one, each) for one in rounds], size)
        for kind in sorted(rounds[0].kinds):
            yield Figure(f"requests for {kind}", who, "a minute", [one.kinds[kind] for one in rounds], size)


def _memories(held: dict[str, list[Memory]], size: Size) -> Iterator[Figure]:
    for who, each in held.items():
        for which, what in MEMORY.items():
            yield Figure(what, who, "MiB", [getattr(one, which) for one in each], size)


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    """Nobody has set aims for them; `make bench-check` sees when they get worse."""
    by = by_name(figures)
    compared = {f"{what}, {figures[0].size}" for what in (*(what for what, _ in WHATS.values()), *MEMORY.values())}
    return [
        Ratio.between(figure, by[name, other])
        for (name, who), figure in by.items()
        if who == OURS and name in compared
        for other in (NAIVE, WAITS)
        if (name, other) in by
    ]


if __name__ == "__main__":
    raise SystemExit(main())
