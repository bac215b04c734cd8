"""`python -m benchmarks.airflow_submissions`: a hundred tasks that submit their jobs at once, to a real YARN.

Each task is a process of its own, as Airflow's are. All load what a training needs, and when all have it they submit,
as an ordinary user, what the operator would at its first try. Masters are so large that most jobs wait in their queue:
what runs does not slow down what is measured. All are killed then, and nothing of them stays.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import attrs

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from benchmarks import hadoop, program
from benchmarks.airflow_side.environment import environment
from benchmarks.airflow_side.turns import in_turns
from benchmarks.launchers.calls import CallCounter
from benchmarks.report import OURS, Figure, Ratio, Report, Size, by_name
from tests.jobs.places import YarnPlace
from tests.jobs.processes import every_process
from tests.waiting import settled, until
from tony_provider.hooks.tony import TonyHook

ROUNDS = 2
TASKS = (1, 100)
_THREADS = 8  # that kill
_WHOLE = "until all are submitted"
_IN_A_ROW = "as many, one after the other"


@attrs.frozen
class Task:
    """One that has submitted. Times in seconds: of its submission since 1970, of the rest those of a processor."""

    application_id: str
    job_dir: str
    began: float
    ended: float
    loaded: float  # what a training needs
    processor: float  # the submission
    resident: float  # MiB, at the end
    proportional: float
    requests: dict[str, int]

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@attrs.frozen
class Burst:
    """Tasks that have submitted at once, and what the NameNode was asked for meanwhile."""

    tasks: list[Task]
    namenode: Counter[str]

    @property
    def seconds(self) -> float:
        """From the first beginning to the last end."""
        return max(task.ended for task in self.tasks) - min(task.began for task in self.tasks)

    def calls(self) -> Counter[str]:
        """Of all of them."""
        return sum((Counter(task.requests) for task in self.tasks), self.namenode)


def measure(tasks: Sequence[int] = TASKS, rounds: int = ROUNDS) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="tony-bench-") as home,
        hadoop.cluster("submissions") as cluster,
        closing(YarnPlace(cluster=cluster)) as place,
        closing(CallCounter(cluster)) as calls,
    ):
        submit(1, place, calls, Path(home))  # the runtime's archive is on the store from now on
        measures = {str(number): partial(submit, number, place, calls, Path(home)) for number in tasks}
        bursts = {int(number): found for number, found in in_turns(measures, rounds).items()}
    found = [figure for number, each in bursts.items() for figure in _figures(Size(number, "tasks"), each)]
    title = f"Tasks that submit at once to a real YARN, {rounds} rounds; calls are those of one submission"
    return Report("airflow_submissions", title, found, ratios(found))


def submit(number: int, place: YarnPlace, calls: CallCounter, home: Path) -> Burst:
    """So many, of which nothing is left."""
    calls.namenode()
    words = [str(place.cluster.layout.root), str(number), f"{place.most_of_a_node}MiB"]
    command = [sys.executable, "-m", "benchmarks.airflow_side.submitting_tasks", *words]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    tasks = [Task(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    burst = Burst(tasks, calls.namenode())
    program.progress(f"{number} tasks: {burst.seconds:.2f} s")
    _remove(place, tasks)
    calls.namenode()
    return burst


def _remove(place: YarnPlace, tasks: Sequence[Task]) -> None:
    """The applications, what runs of them, and what they have on the store. Raises AssertionError where some stays."""
    hook = place.hook()
    ids = {task.application_id for task in tasks}

    def end(task: Task) -> None:
        hook.kill(task.application_id, "the benchmark is over")
        until(lambda: _has_ended(hook, task.application_id), f"the end of {task.application_id}", period=0.5)

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(end, tasks))
        left = settled(lambda: _processes(ids))
        assert left == [], left
        list(threads.map(lambda task: hook.storage().remove(task.job_dir, recursive=True), tasks))
    assert not [task.job_dir for task in tasks if hook.storage().exists(task.job_dir)]


def _has_ended(hook: TonyHook, application_id: str) -> bool:
    application = hook.application(application_id)
    return application is not None and application.is_final


def _processes(ids: set[str]) -> list[str]:
    """Command lines of those that are of these applications."""
    numbers = [name.removeprefix("application") for name in ids]
    return [each.words for each in every_process().values() if any(map(each.holds, numbers))]


def _figures(size: Size, bursts: Sequence[Burst]) -> Iterator[Figure]:
    def figure(what: str, unit: str, values: list[float]) -> Figure:
        return Figure(what, OURS, unit, values, size)

    def mean(name: str) -> list[float]:
        return [sum(getattr(task, name) for task in burst.tasks) / size.value for burst in bursts]

    yield figure(_WHOLE, "s", [burst.seconds for burst in bursts])
    yield figure("until a job is submitted, mean", "s", mean("seconds"))
    yield figure("a submission, processor", "s", mean("processor"))
    yield figure("what a task loads for it, processor", "s", mean("loaded"))
    for name in ("resident", "proportional"):
        yield figure(f"memory of a task, {name}", "MiB", mean(name))
    for kind in sorted({kind for burst in bursts for kind in burst.calls()}):
        yield figure(f"calls, {kind}", "calls", [burst.calls()[kind] / size.value for burst in bursts])


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    """Many at once to as many one after the other."""
    one = by_name(found).get((f"{_WHOLE}, {Size(1, 'tasks')}", OURS))
    if one is None:
        return []
    return [
        Ratio.between(many, attrs.evolve(one, who=_IN_A_ROW, values=[many.size.value * value for value in one.values]))
        for many in found
        if many.what == _WHOLE and many.size is not None and many.size.value > 1
    ]


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--tasks", type=program.sizes, default=TASKS, help="such as 1,100")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.tasks, arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
