"""`python -m benchmarks.scale`: a job of thousands of tasks, and what its application master needs for it.

The master and the streams of its executors are real; the executors are simulated and run nothing, and a stand-in for
the ResourceManager has room for everything. Told are the master's memory at its highest, the share of a core that it
takes while nothing happens, the longest time that its event loop did not come round, and the seconds until everybody
runs: at the start, after one user process has died, after all have, and after the master was killed. Executors share
the machine with the master, so seconds are upper bounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from benchmarks import program
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, Size, by_name
from benchmarks.scale_field import Field, field
from benchmarks.scale_nodes import EVERY_TASK
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec

ROUNDS = {100: 2, 1000: 2, 3000: 1}  # by tasks
STEADY = 10.0  # seconds
_SETTLE = 2.0  # seconds that what the last of them said takes to be worked off

MOST_CPU = 100.0  # percent of a core
MOST_RESTART = 30.0  # seconds
MOST_LATE = 1.0  # seconds
MOST_GROWTH = 1.3  # memory for each further task, of a size beside the one before


@attrs.define
class Measured:
    """Of one job."""

    memory: float = 0.0  # MiB peak resident memory, of both masters
    cpu: float = 0.0  # percent of a core while nothing happens
    late: float = 0.0  # seconds at the longest that the event loop did not come round
    start: float = 0.0  # seconds
    start_cpu: float = 0.0  # seconds of processor time
    restart: float = 0.0  # one user process has died
    together: float = 0.0  # and all of them have, as they do when they lose each other
    recovery: float = 0.0
    status: float = 0.0  # KiB
    events: float = 0.0  # KiB


WHATS = {
    "memory": ("master, peak resident memory", "MiB"),
    "cpu": ("CPU while nothing happens", "% of a core"),
    "late": ("maximum delay of the event loop", "s"),
    "start": ("all run, from the start", "s"),
    "start_cpu": ("CPU of the start", "s"),
    "restart": ("all run again, after one user process has died", "s"),
    "together": ("all run again, after all user processes have died", "s"),
    "recovery": ("all executors reconnected, after the master has died", "s"),
    "status": ("status.json", "KiB"),
    "events": ("event log", "KiB"),
}
MOST = {"cpu": MOST_CPU, "late": MOST_LATE, "restart": MOST_RESTART, "together": MOST_RESTART}


def measure(rounds: Mapping[int, int] = ROUNDS) -> Report:
    """``rounds`` by the number of tasks."""
    figures: list[Figure] = []
    for tasks, times in rounds.items():
        found = []
        for number in range(times):
            found.append(measured(tasks))
            program.progress(f"{tasks} tasks, round {number + 1}: {_line(found[-1])}")
        for each, (what, unit) in WHATS.items():
            values = [getattr(job, each) for job in found]
            figures.append(Figure(what, OURS, unit, values, Size(tasks, "tasks")))
    title = "One job, simulated executors over real streams, a stand-in for the ResourceManager"
    return Report("scale", title, figures, ratios(figures, list(rounds)))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--tasks", type=program.sizes, default=list(ROUNDS), help="such as 100,1000,10000")
    arguments = parser.parse_args()
    return program.tell(
        measure({tasks: arguments.rounds or ROUNDS.get(tasks, 1) for tasks in arguments.tasks}), arguments.output
    )


def _line(found: Measured) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in attrs.asdict(found).items())


def measured(tasks: int) -> Measured:
    found = Measured()
    with field(tasks) as job:
        with _looked_at(job, found):
            job.start_master(1)
            found.start = job.until_all("generations", 1)
            found.start_cpu = job.cpu_seconds
        with _looked_at(job, found):
            began, before = time.monotonic(), job.cpu_seconds
            time.sleep(STEADY)
            found.cpu = 100 * (job.cpu_seconds - before) / (time.monotonic() - began)
        with _looked_at(job, found):
            job.ask(order="fail", task=f"worker:{tasks // 2}")
            found.restart = job.until_all("generations", 2)
        with _looked_at(job, found):
            job.ask(order="fail", task=EVERY_TASK)
            found.together = job.until_all("generations", 3)
        job.until_noted('"generation":3')
        found.status, found.events = job.size(contract.STATUS_FILE) / 1024, job.events_size / 1024
        job.kill_master()
        with _looked_at(job, found):
            began = time.monotonic()
            job.start_master(2)
            job.until_all("attempts", 2)
            job.until_noted('"recovered"')
            found.recovery = time.monotonic() - began
        assert job.count("starts", 3) == tasks, "the new master has started somebody again"
    return found


@contextmanager
def _looked_at(job: Field, found: Measured) -> Iterator[None]:
    """How late its loop has been since, and the memory that it has had so far."""
    began = time.monotonic()
    yield
    time.sleep(_SETTLE)
    found.late = max(found.late, job.late(began))
    found.memory = max(found.memory, job.memory)


def ratios(figures: Sequence[Figure], sizes: Sequence[int]) -> list[Ratio]:
    """Of the largest job; of memory, from each size to the next."""
    by = {name: figure for (name, _), figure in by_name(figures).items()}

    def figure(each: str, tasks: int) -> Figure:
        return by[f"{WHATS[each][0]}, {Size(tasks, 'tasks')}"]

    found = [Ratio.alone(figure("memory", sizes[-1]), Aim(_container(sizes[-1])))]
    found += [Ratio.alone(figure(each, sizes[-1]), Aim(most)) for each, most in MOST.items()]
    in_threes = zip(sizes, sizes[1:], sizes[2:], strict=False)
    return found + [_growth(*(figure("memory", tasks) for tasks in three)) for three in in_threes]


def _growth(fewer: Figure, some: Figure, more: Figure) -> Ratio:
    """Memory of each further task between the two larger sizes, beside that between the two smaller ones."""

    def further(least: float, most: float, between: tuple[Figure, Figure]) -> float:
        small, large = (figure.size.value for figure in between if figure.size)
        return (most - least) / (large - small)

    values = [
        further(second, third, (some, more)) / further(first, second, (fewer, some))
        for first, second, third in zip(fewer.values, some.values, more.values, strict=False)
    ]
    return Ratio(f"memory of a further task, up to {more.size}", f"{some.size}", values, Aim(MOST_GROWTH))


def _container(tasks: int) -> float:
    """MiB that the master of such a job gets where nobody says otherwise."""
    return JobSpec("tensorflow", {"worker": TaskSpec("true", instances=tasks)}).am_memory


if __name__ == "__main__":
    raise SystemExit(main())
