"""`python -m benchmarks.recovery`: how long a job needs to run as before, after something of it was killed.

Two tasks, which write when they begin. Of this project they are a gang, which starts again as one; the first restart
without progress waits for no back-off. Told is when the last task of the gang has begun anew. skein starts the lost
task again alone, and has no executors: there the whole container is killed.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from benchmarks import hadoop, peers, program
from benchmarks.launchers.base import SCRIPT, TASK_MEMORY, TrivialJob, trivial_job
from benchmarks.launchers.skein import Skein
from benchmarks.report import OURS, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.jobs.processes import Seen, processes_of
from tests.waiting import until

TASKS = 2
ROUNDS = 3
WHO = (OURS, "skein")
NOT_RUNNING = "master killed, tasks not running"
_LONG = 600.0  # seconds that a task would wait
_POLL = 0.05


class Subject(ABC):
    """One of those that are compared."""

    name: str
    again: int  # how many tasks start again when one is lost
    master: str  # what its master's command line holds
    leaves_processes = False  # what a killed user process had started may go on for ever

    @abstractmethod
    def start(self, job: TrivialJob) -> str:
        """Its id."""

    @abstractmethod
    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        """Of this task's user process."""

    @abstractmethod
    def until_met(self) -> None:
        """Whatever tasks have outlived the master have met the next one."""


class Ours(Subject):
    name = OURS
    again = TASKS
    master = "start.py am"

    def __init__(self, place: YarnPlace) -> None:
        self._place = place
        self._job: Job

    def start(self, job: TrivialJob) -> str:
        worker = {"instances": job.tasks, "memory": f"{TASK_MEMORY}MiB", "command": shlex.join(job.words)}
        # Nothing listens: the tasks only wait.
        spec = {"framework": "tensorflow", "network": "trusted", "tasks": {"worker": worker}}
        self._job = self._place.submit(spec)
        return self._job.id

    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        """Its executor, by which YARN knows that the container lives."""
        while not task.words.endswith("start.py executor"):
            task = everyone[task.parent]
        os.kill(task.pid, signal.SIGKILL)

    def until_met(self) -> None:
        job = self._job
        until(lambda: "recovered" in [event["event"] for event in job.events()], job.describe, period=_POLL)


class SkeinSubject(Subject):
    name = "skein"
    leaves_processes = True
    again = 1
    master = "com.anaconda.skein.ApplicationMaster"

    def __init__(self, skein: Skein) -> None:
        self._skein = skein

    def start(self, job: TrivialJob) -> str:
        return self._skein.submit(job).application_id

    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        os.killpg(os.getpgid(task.pid), signal.SIGKILL)

    def until_met(self) -> None:
        """YARN has ended them."""


@attrs.frozen
class Running:
    """A job whose tasks all run."""

    subject: Subject
    cluster: HadoopCluster
    job: TrivialJob
    id: str

    def processes(self) -> dict[int, Seen]:
        return {process.pid: process for process in processes_of(self.id)}

    def tasks(self, everyone: Mapping[int, Seen]) -> list[int]:
        """The user processes of its tasks."""
        return sorted(pid for pid, each in everyone.items() if each.words.startswith(f"/bin/sh {SCRIPT}"))

    def task(self, everyone: Mapping[int, Seen]) -> Seen:
        """One of them."""
        return everyone[self.tasks(everyone)[0]]

    def report(self) -> Any:
        """What the ResourceManager says."""
        url = f"{self.cluster.rm_webapp[0]}/ws/v1/cluster/apps/{self.id}"
        return self.cluster.client(USER).get_json(url)["app"]

    def until_again(self, number: int) -> float:
        """When the last of so many tasks has begun anew."""

        def begun() -> list[float]:
            return self.job.began()[TASKS : TASKS + number]

        return until(lambda: begun() if len(begun()) == number else None, f"{self.id} to recover", period=_POLL)[-1]

    def until_next_master(self) -> float:
        def registered() -> bool:
            report = self.report()  # which names the attempt within the id of its master's container
            return report["state"] == "RUNNING" and "_02_000001/" in report.get("amContainerLogs", "")

        until(registered, f"the next master of {self.id}", period=_POLL)
        return time.time()

    def end(self) -> None:
        self.cluster.kill_application(self.id, USER)
        if self.subject.leaves_processes:
            until(lambda: self.report()["state"] in ("KILLED", "FAILED", "FINISHED"), f"{self.id} to end")
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), lambda: f"{self.id} to end: {[*self.processes().values()]}")


def user_process_killed(running: Running) -> dict[str, float]:
    task = running.task(running.processes())
    began = time.time()
    os.kill(task.pid, signal.SIGKILL)
    return {"user process killed": running.until_again(running.subject.again) - began}


def container_killed(running: Running) -> dict[str, float]:
    everyone = running.processes()
    task = running.task(everyone)
    began = time.time()
    running.subject.kill_container(task, everyone)
    return {"executor or container killed": running.until_again(running.subject.again) - began}


def master_killed(running: Running) -> dict[str, float]:
    """Until there is another one; and until all tasks run, where they have died with the first one."""
    subject, before = running.subject, running.processes()
    masters = [each.pid for each in before.values() if subject.master in each.words and "bash" not in each.program]
    began = time.time()
    for pid in masters:
        os.kill(pid, signal.SIGKILL)
    next_one = running.until_next_master() - began
    subject.until_met()
    outlived = running.tasks(before) == running.tasks(running.processes()) and len(running.job.began()) == TASKS
    return {
        "master killed, until the next one": next_one,
        NOT_RUNNING: 0.0 if outlived else running.until_again(TASKS) - began,
    }


FAULTS: Sequence[Callable[[Running], dict[str, float]]] = (user_process_killed, container_killed, master_killed)


def measure(rounds: int = ROUNDS, who: Sequence[str] = WHO) -> Report:
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("recovery") as cluster:
        home = Path(name)
        with _subjects(who, cluster, home) as subjects:
            for number in range(rounds):
                for subject in subjects if number % 2 else reversed(subjects):
                    for fault in FAULTS:
                        for what, seconds in _hit(fault, subject, cluster, home).items():
                            found.setdefault((what, subject.name), []).append(seconds)
                            program.progress(f"round {number + 1}: {subject.name:14} {what:36} {seconds:.2f} s")
    figures = [Figure(what, of, "s", values) for (what, of), values in sorted(found.items())]
    return Report("recovery", f"Seconds until a job of {TASKS} tasks runs again", figures, ratios(figures))


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--who", type=program.names, default=WHO, help="such as tony_provider")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS, arguments.who), arguments.output)


def _hit(
    fault: Callable[[Running], dict[str, float]], subject: Subject, cluster: HadoopCluster, home: Path
) -> dict[str, float]:
    with trivial_job(home, TASKS, seconds=_LONG, restarts=-1, watched=False) as job:
        running = Running(subject, cluster, job, subject.start(job))
        try:
            until(lambda: len(job.began()) == TASKS, f"the tasks of {running.id} to begin", period=_POLL)
            time.sleep(2)  # what its master does at the start is done
            return fault(running)
        finally:
            running.end()


@contextmanager
def _subjects(who: Sequence[str], cluster: HadoopCluster, home: Path) -> Iterator[list[Subject]]:
    python = peers.skein_python() if "skein" in who else None
    with ExitStack() as stack:
        subjects: list[Subject] = []
        if OURS in who:
            subjects.append(Ours(stack.enter_context(closing(YarnPlace(cluster=cluster)))))
        if python is not None:
            subjects.append(SkeinSubject(stack.enter_context(closing(Skein(python, cluster, home)))))
        yield subjects


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    both = [what for what, who in by if who == "skein" and (what, OURS) in by and what != NOT_RUNNING]
    return [Ratio.between(by[what, OURS], by[what, "skein"]) for what in both]


if __name__ == "__main__":
    raise SystemExit(main())
