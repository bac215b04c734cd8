"""`python -m benchmarks.launch`: how long trivial jobs take to begin and to end, and what they cost meanwhile.

All compared launchers start the same jobs, in turns. Each task writes when it begins, waits until all tasks have begun
and a second more, and writes when it ends. As in a training, a task that runs alone is worth nothing, and no task makes
room for another task. The report has the seconds until submit returns, until the first and the last user process begin,
from the end of the last user process until the client knows, and of the whole job. It also has the seconds of each
phase from the logs of YARN's daemons, the memory of client, master and executors, and the calls to each server.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import attrs

from benchmarks import hadoop, peers, program
from benchmarks.launchers.base import Launcher, trivial_job
from benchmarks.launchers.by_hand import ByHand
from benchmarks.launchers.calls import CallCounter
from benchmarks.launchers.distributed_shell import DistributedShell
from benchmarks.launchers.floor import Floor
from benchmarks.launchers.memory import JobMemory
from benchmarks.launchers.ours import TonyProvider
from benchmarks.launchers.skein import Skein
from benchmarks.phases import PHASES, Client, phases
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, Size, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.waiting import until

ROUNDS = {1: 1, 2: 4, 8: 1, 32: 2}  # by tasks
COSTS = 2  # rounds of the look at memory and calls of ours; others are looked at once
COSTS_OF = 2  # tasks of the jobs whose memory and calls are looked at
COSTS_SECONDS = 5.0  # that their tasks wait: looking takes a while, so these jobs are not timed
_MOST_LAUNCH = 120.0  # seconds


@attrs.frozen
class Times:
    """Of one job, in seconds."""

    submit: float  # until the client has the application's id, and may go
    store: float  # of that, how long the store was asked for something
    first: float  # from the beginning of the submission to the first user process
    last: float  # … to the last one
    known: float  # from the end of the last user process until the client knows
    wall: float  # of the whole
    phases: list[float]  # seconds of each of PHASES; empty without a cluster


def measure(
    rounds: Mapping[int, int] = ROUNDS,
    who: Sequence[str] | None = None,
    costs: int = COSTS,
    before: Path | None = None,
) -> Report:
    """``rounds``: by the number of tasks. ``who``: names of launchers; default: all.

    ``before``: a checkout of another commit, which takes turns with this one.
    """
    chosen = who or list(MAKERS)
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name:
        home = Path(name)
        with hadoop.cluster("launch") as cluster, _launchers(chosen, cluster, home) as launchers, ExitStack() as stack:
            if before is not None:
                launchers.append(stack.enter_context(closing(TonyProvider(cluster, home, before))))
            for launcher in launchers:  # files on the nodes, classes, connections
                run(cluster, launcher, 1, home)
            figures = [figure for tasks in rounds for figure in timed(cluster, launchers, tasks, rounds[tasks], home)]
            with closing(CallCounter(cluster)) as calls:
                figures += looked_at(launchers, calls, costs, home)
    return Report("launch", _title(chosen, launchers), figures, ratios(figures))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--tasks", type=program.sizes, default=list(ROUNDS), help="of the jobs, such as 2,32")
    parser.add_argument("--who", type=program.names, help=f"some of {','.join(MAKERS)}")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, which takes turns with this one")
    parser.add_argument("--costs", type=int, default=COSTS, help="rounds of the look at memory and calls (%(default)s)")
    arguments = parser.parse_args()
    rounds = {tasks: arguments.rounds or ROUNDS.get(tasks, 3) for tasks in arguments.tasks}
    return program.tell(measure(rounds, arguments.who, arguments.costs, arguments.before), arguments.output)


@contextmanager
def _launchers(chosen: Sequence[str], cluster: HadoopCluster, home: Path) -> Iterator[list[Launcher]]:
    with ExitStack() as stack:
        made = (MAKERS[name](cluster, home) for name in chosen)
        yield [stack.enter_context(closing(launcher)) for launcher in made if launcher is not None]


def _skein(cluster: HadoopCluster, home: Path) -> Launcher | None:
    python = peers.skein_python()
    return None if python is None else Skein(python, cluster, home)


def _distributed_shell(cluster: HadoopCluster, home: Path) -> Launcher | None:
    jar = peers.distributed_shell_jar(cluster.settings.version)
    return None if jar is None else DistributedShell(jar, cluster, home)


MAKERS: dict[str, Callable[[HadoopCluster, Path], Launcher | None]] = {
    OURS: TonyProvider,
    "floor": Floor,
    "skein": _skein,
    "distributed shell": _distributed_shell,
    "by hand": lambda cluster, home: ByHand(),
}


def timed(
    cluster: HadoopCluster, launchers: Sequence[Launcher], tasks: int, rounds: int, home: Path
) -> Iterator[Figure]:
    found: dict[str, list[Times]] = {launcher.name: [] for launcher in launchers}
    for number in range(rounds):
        turn = number % len(launchers)
        for launcher in [*launchers[turn:], *launchers[:turn]]:
            if number and launcher.name == DistributedShell.name:  # no ratio is made of it: once is enough
                continue
            times = run(cluster, launcher, tasks, home)
            found[launcher.name].append(times)
            program.progress(f"{tasks} tasks, round {number + 1}: {launcher.name:18} {_line(times)}")
    size = Size(tasks, "tasks")
    for name, each in found.items():
        for field, what in WHATS.items():
            yield Figure(what, name, "s", [getattr(times, field) for times in each], size)
        for number, phase in enumerate(PHASES):
            if all(times.phases for times in each):
                yield Figure(f"phase: {phase}", name, "s", [times.phases[number] for times in each], size)
        if name == OURS:
            yield Figure(BEYOND, name, "s", [times.submit - times.store for times in each], size)


WHATS = {
    "submit": "submit returns",
    "first": "first user process",
    "last": "last user process",
    "known": "last process ended until the client knows",
    "wall": "whole job",
}
BEYOND = "submit without the store"


def _line(times: Times) -> str:
    return "  ".join(f"{name} {getattr(times, name):6.2f}" for name in WHATS)


_HEARTBEAT = 1.0  # seconds between two heartbeats of a node


def run(cluster: HadoopCluster, launcher: Launcher, tasks: int, home: Path) -> Times:
    """One job, until nothing of it is left."""
    # The former job ends with a node's heartbeat. Without a random pause, all jobs would start just after a heartbeat.
    time.sleep(random.uniform(0.0, _HEARTBEAT))
    with trivial_job(home, tasks) as job:
        launch = launcher.submit(job)
        known = launcher.wait().at
        begun, ended = job.began(), job.ended()
        assert len(begun) == len(ended) == tasks, f"{launcher.name}: {begun} {ended}"
        until(lambda: not launch.processes(), f"{launch.application_id} to leave no process")
    client = Client(launch.began, launch.submitted, begun[-1], ended[-1], known)
    return Times(
        submit=launch.submitted - launch.began,
        store=launch.store,
        first=begun[0] - launch.began,
        last=begun[-1] - launch.began,
        known=known - ended[-1],
        wall=known - launch.began,
        phases=phases(cluster, launch.application_id, client) if launch.application_id else [],
    )


def looked_at(launchers: Sequence[Launcher], calls: CallCounter, times: int, home: Path) -> Iterator[Figure]:
    """Memory while the tasks run, and who is asked for what, by one submission and by the whole job."""
    for launcher in launchers:
        often = {OURS: times, ByHand.name: 0}.get(launcher.name, 1)
        rounds = [_cost(launcher, calls, home) for _ in range(often)]
        for whose in ("client", "master", "helpers"):
            for which in ("resident", "proportional"):
                values = [getattr(getattr(memory, whose), which) for memory, _, _ in rounds]
                if values:
                    yield Figure(f"{MEMORY[whose]}, {which}", launcher.name, "MiB", values, _LOOKED_AT)
        for part, counts in (("submission", [each[1] for each in rounds]), ("job", [each[2] for each in rounds])):
            for kind in sorted({kind for each in counts for kind in each}):
                what = f"calls of one {part}, {kind}"
                yield Figure(what, launcher.name, "calls", [float(each[kind]) for each in counts])


_LOOKED_AT = Size(COSTS_OF, "tasks")
MEMORY = {"client": "client", "master": "master", "helpers": "executor memory per user process"}


def _cost(launcher: Launcher, calls: CallCounter, home: Path) -> tuple[JobMemory, Counter[str], Counter[str]]:
    """Of one job: its memory, the calls of its submission, and those of it all."""
    with trivial_job(home, COSTS_OF, seconds=COSTS_SECONDS) as job:
        calls.namenode()
        launch = launcher.submit(job)
        submission = calls.namenode() + Counter(launch.requests)
        until(lambda: len(job.began()) == COSTS_OF, f"the tasks of {launcher.name} to begin", _MOST_LAUNCH, 0.1)
        time.sleep(COSTS_SECONDS / 2)  # what they do at their start is done
        memory = JobMemory.of(launcher.client(), launch.processes(), COSTS_OF)
        ended = launcher.wait()
        until(lambda: not launch.processes(), f"{launch.application_id} to leave no process")
    return memory, submission, submission + calls.namenode() + calls.resourcemanager() + Counter(ended.requests)


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    found = []
    for tasks, aims in AIMS.items():
        for (what, other), aim in aims.items():
            mine = by.get((f"{what}, {tasks} tasks", OURS))
            theirs = by.get((f"{what}, {tasks} tasks", other))
            if mine and not other:
                found.append(Ratio.alone(mine, aim))
            elif mine and theirs:
                found.append(Ratio.between(mine, theirs, aim))
    return found


# Aims by number of tasks. Keys: a figure and the launcher for the ratio, or "" for the figure itself. A gang's first
# process starts when all containers are allocated, and the first process of other launchers when one container is
# allocated. So with 32 tasks, the last processes are compared.
AIMS: dict[int, dict[tuple[str, str], Aim | None]] = {
    2: {
        ("first user process", "floor"): Aim(1.35),
        ("last user process", "floor"): None,
        ("whole job", "floor"): None,
        ("first user process", "skein"): None,
        ("whole job", "skein"): None,
        ("submit returns", ""): Aim(0.25),
        ("last process ended until the client knows", ""): Aim(0.6),
        (f"{MEMORY['master']}, resident", ""): None,
        (f"{MEMORY['master']}, proportional", ""): Aim(40.0),
        (f"{MEMORY['helpers']}, resident", ""): None,
        (f"{MEMORY['helpers']}, proportional", ""): Aim(34.0),
    },
    32: {
        ("last user process", "floor"): None,
        ("whole job", "floor"): Aim(1.1),
        ("last user process", "skein"): None,
        ("whole job", "skein"): None,
        ("submit returns", ""): Aim(0.25),
        ("last process ended until the client knows", ""): Aim(1.2),
    },
}


def _title(chosen: Sequence[str], launchers: Sequence[Launcher]) -> str:
    left_out = [name for name in chosen if name not in {launcher.name for launcher in launchers}]
    said = f"; left out, as they cannot be had here: {', '.join(left_out)}" if left_out else ""
    return f"Trivial jobs of one second, a node heartbeat every second{said}"


if __name__ == "__main__":
    raise SystemExit(main())
