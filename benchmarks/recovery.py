"""`python -m benchmarks.recovery`: how long a job needs to run as before, after something of it was killed.

Two tasks, which write when they begin. Of this project they are a gang, which starts again as one, a second after the
failure, as in `make faults`; skein starts the lost task again alone, and has no executors: there the whole container is
killed. $ROUNDS (5) and $ONLY (tony_provider,skein) choose less.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs

from benchmarks import hadoop, peers
from benchmarks.launchers.base import SCRIPT, TASK_MEMORY, TrivialJob, trivial_job
from benchmarks.launchers.skein import Skein
from benchmarks.report import OURS, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER, YarnPlace
from tests.jobs.processes import Seen, processes_of
from tests.waiting import until

TASKS = 2
_LONG = 600.0  # seconds that a task would wait
_POLL = 0.05


class Subject(ABC):
    """One of those that are compared."""

    name: str
    again: int  # how many tasks start again when one is lost
    master: str  # what its master's command line holds
    tasks_outlive_master: bool

    @abstractmethod
    def start(self, job: TrivialJob) -> str:
        """Its id."""

    @abstractmethod
    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        """Of this task's user process."""


class Ours(Subject):
    name = OURS
    again = TASKS
    master = "main.py am"
    tasks_outlive_master = True

    def __init__(self, place: YarnPlace) -> None:
        self._place = place

    def start(self, job: TrivialJob) -> str:
        worker = {"instances": job.tasks, "memory": f"{TASK_MEMORY}MiB", "command": shlex.join(job.words)}
        # Nothing listens: the tasks only wait.
        spec = {
            "framework": "tensorflow",
            "network": "trusted",
            "restart": {"backoff": "1s"},
            "tasks": {"worker": worker},
        }
        return self._place.submit(spec).id

    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        """Its executor, by which YARN knows that the container lives."""
        while not task.words.endswith("main.py executor"):
            task = everyone[task.parent]
        os.kill(task.pid, signal.SIGKILL)


class SkeinSubject(Subject):
    name = "skein"
    again = 1
    master = "com.anaconda.skein.ApplicationMaster"
    tasks_outlive_master = False

    def __init__(self, skein: Skein) -> None:
        self._skein = skein

    def start(self, job: TrivialJob) -> str:
        return self._skein.submit(job).application_id

    def kill_container(self, task: Seen, everyone: Mapping[int, Seen]) -> None:
        os.killpg(os.getpgid(task.pid), signal.SIGKILL)


@attrs.frozen
class Running:
    """A job whose tasks all run."""

    subject: Subject
    cluster: HadoopCluster
    job: TrivialJob
    id: str

    def processes(self) -> dict[int, Seen]:
        return {process.pid: process for process in processes_of(self.id)}

    def task(self, everyone: Mapping[int, Seen]) -> Seen:
        """The user process of one of its tasks."""
        return next(each for each in everyone.values() if each.words.startswith(f"/bin/sh {SCRIPT}"))

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
        url = f"{self.cluster.rm_webapp[0]}/ws/v1/cluster/apps/{self.id}/state"
        killed = json.dumps({"state": "KILLED"}).encode()
        self.cluster.client(USER).request("PUT", url, killed, "application/json")
        until(lambda: not self.processes(), f"{self.id} to end")


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
    seconds = {"master killed, until the next one": running.until_next_master() - began}
    if subject.tasks_outlive_master:
        assert running.task(before).pid in running.processes(), "the tasks have not outlived the master"
        assert len(running.job.began()) == TASKS
        return {**seconds, "master killed, tasks not running": 0.0}
    return {**seconds, "master killed, tasks not running": running.until_again(TASKS) - began}


FAULTS: Sequence[Callable[[Running], dict[str, float]]] = (user_process_killed, container_killed, master_killed)


def main() -> int:
    rounds = int(os.environ.get("ROUNDS") or 5)
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name, hadoop.cluster("recovery") as cluster:
        home = Path(name)
        with _subjects(cluster, home) as subjects:
            for number in range(rounds):
                for subject in subjects if number % 2 else reversed(subjects):
                    for fault in FAULTS:
                        for what, seconds in _hit(fault, subject, cluster, home).items():
                            found.setdefault((what, subject.name), []).append(seconds)
                            print(f"round {number + 1}: {subject.name:14} {what:36} {seconds:.2f} s", file=sys.stderr)
    figures = [Figure(what, who, "s", values) for (what, who), values in sorted(found.items())]
    report = Report("recovery", "Seconds until a job of two tasks runs as before", figures, ratios(figures))
    print(report.text())
    report.write()
    return 0


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
def _subjects(cluster: HadoopCluster, home: Path) -> Iterator[list[Subject]]:
    chosen = os.environ.get("ONLY", f"{OURS},skein").split(",")
    python = peers.skein_python() if "skein" in chosen else None
    subjects: list[Subject] = []
    place = YarnPlace(cluster=cluster)
    if OURS in chosen:
        subjects.append(Ours(place))
    if python is None:
        yield subjects
    else:
        with closing(Skein(python, cluster, home)) as skein:
            yield [*subjects, SkeinSubject(skein)]
    place.close()


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    by = by_name(figures)
    both = [what for what, who in by if who == "skein" and (what, OURS) in by and "not running" not in what]
    return [Ratio.between(by[what, OURS], by[what, "skein"]) for what in both]


if __name__ == "__main__":
    raise SystemExit(main())
