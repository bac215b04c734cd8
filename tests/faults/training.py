"""The training under test: started through the hook, hit, and looked at from outside."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.faults.account import Account, contradictions, costs
from tests.faults.entries import Diary, Entry
from tests.faults.weights import TOLERANCE, References, difference, load
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.processes import Process
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.jobs.processes import Seen, processes_of
from tests.waiting import settled, until
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage.base import read_bytes, walk

T = TypeVar("T")

STEP_SECONDS = 240.0  # that a job may take to a certain step: its containers, its start, and a busy machine
END_SECONDS = 400.0  # that a training may take from its last hit to its end


@dataclass
class Training:
    place: YarnPlace
    job: Job
    diary: Diary
    program: str
    environment: dict[str, str]  # FAULTS_*, those that decide what is trained
    references: References
    leader: str = "worker:0"
    gang: tuple[str, ...] = ("worker:0", "worker:1")
    hits: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    # -- until it is hit ---------------------------------------------------------------------------------------------

    @contextmanager
    def hit(self) -> Iterator[None]:
        """Around what is done to it."""
        self.hits.append(time.time())
        yield

    def until_started(self, task: str, after: float) -> Entry:
        """Wait until a user process of the task has started after that time (seconds since the epoch)."""
        return self.until(
            lambda: next(iter(self.diary.entries("started", task, after)), None), f"{task} to start again"
        )

    def until_step(self, step: int, after: float = 0.0) -> Entry:
        """Wait until the leader has done this step, or a later one, after that time (seconds since the epoch)."""

        def look() -> Entry | None:
            done = self.diary.entries("step", self.leader, after)
            return next((entry for entry in done if (entry.step or 0) >= step), None)

        return self.until(look, f"step {step}")

    def until_saved(self, step: int) -> Entry:
        """Wait until the leader has written the checkpoint of this step, on its own disk."""

        def look() -> Entry | None:
            return next((entry for entry in self.diary.entries("saved", self.leader) if entry.step == step), None)

        return self.until(look, f"step {step} to be saved")

    def until_committed(self, step: int, *, by_master: bool = False) -> str:
        """Wait until the checkpoint of this step, or a newer one, is committed; its URI.

        ``by_master``: ask the master, as the store is slow to show a status that is written while it hangs.
        """
        status_of = self.job.handle.master_status if by_master else self.job.handle.status

        def look() -> str | None:
            status = status_of()
            if status is not None and (status.checkpoint_step or 0) >= step:
                return status.checkpoint_dir
            return None

        return self.until(look, f"step {step} to be committed")

    def until_restarted(self, task: str) -> Entry:
        """Wait until the task has a new user process since it was hit."""
        since = self.hits[-1]
        return self.until(
            lambda: next(iter(self.diary.entries("started", task, since)), None), f"{task} to be started again"
        )

    def until_master(self, attempt: int) -> None:
        """Wait until this attempt of the application master is at work, and all that it found runs."""

        def look() -> bool:
            status = self.job.status()
            return status.am_attempt == attempt and status.state is JobState.RUNNING

        self.until(look, f"master number {attempt}")

    def until(self, look: Callable[[], T | None], what: str, seconds: float = STEP_SECONDS) -> T:
        """The first true answer of ``look``; there will be none once the application has ended."""

        def look_while_it_runs() -> T | None:
            if (found := look()) or not self.job.application().is_final:
                return found
            raise AssertionError(f"it ended before there was {what}: {self.job.application().diagnostics}")

        return until(look_while_it_runs, lambda: f"{what}\n{self.job.describe()}", seconds)

    def container_logs(self) -> str:
        """What its containers have printed and logged."""
        paths = [path for folder in self.job.log_folders(self.job.id) for path in folder.iterdir()]
        return "".join(path.read_text(errors="replace") for path in paths if path.is_file())

    def resumed_steps(self) -> list[int]:
        """Where each process of the leader began, the first one left out."""
        return [entry.step or 0 for entry in self.diary.entries("ready", self.leader)[1:]]

    def user_process(self, task: str) -> Process:
        return self.diary.process(task)

    def executor(self, task: str) -> Process:
        """Of the task's newest container."""
        mine = [process for process in self.job.executors() if process.holds(f"{contract.ENV_TASK}={task}\0")]
        assert mine, f"{task} has no executor"
        newest = max(mine, key=_attempt)
        return _process(newest)

    def master(self) -> Process:
        return _process(self.job.master())

    def kill(self, task: str) -> None:
        """The task's user process."""
        self.user_process(task).signal(signal.SIGKILL)

    @property
    def tasks(self) -> list[str]:
        return [task.name for task in self.job.status().tasks]

    def dawdle(self, pace: float) -> None:
        """Have each further step take this many seconds: the training is still there when what was done to it shows."""
        self.diary.set_pace(pace)

    def hurry(self) -> None:
        """It has shown: the rest as fast as it can."""
        self.diary.set_pace(0.0)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Something beside what holds for all rows; the training goes on in any case."""
        if not holds:
            self.problems.append(otherwise)

    # -- its end -----------------------------------------------------------------------------------------------------

    def finish(self, replaced: Sequence[str] | None = (), former: Sequence[str] = ()) -> Account:
        """Wait for its end; what it did, and what is wrong with that.

        ``replaced``: the tasks that must have got a new container, and no others; None: does not matter.
        ``former``: applications that trained before this one, and had ended.
        """
        application = self._end()
        status = self.job.status()
        account = costs(self.diary, self.hits, self.leader, self.gang)
        account.did = self._did(status)
        account.problems += self.problems
        finished = application is None or application.state is ApplicationState.FINISHED
        succeeded = finished and status.state is JobState.SUCCEEDED
        account.expect(succeeded, f"it ended {status.state.value}; the cluster says {application}")
        if succeeded:
            account.problems += self.wrong_weights(status)
        if replaced is not None:
            seen = sorted(task.name for task in status.tasks if task.attempt > 1)
            account.expect(seen == sorted(replaced), f"tasks that got a new container: {seen}")
        account.problems += contradictions(self.diary)
        account.problems += self.other_applications(former)
        account.problems += self.left()
        return account

    def _end(self) -> Application | None:
        """Wait until it has ended; what the cluster says of it, unless it has forgotten it."""
        if self.job.hook.application(self.job.id) is None:
            return None
        return self.job.end(END_SECONDS)

    def wrong_weights(self, status: JobStatus) -> list[str]:
        """How they differ from those of an undisturbed run; empty when they do not."""
        if status.model_dir is None:
            return ["it left no model"]
        storage = self.job.hook.storage()
        files = [entry.path for entry in walk(storage, status.model_dir) if not entry.is_directory]
        own = load({path.rpartition("/")[2]: read_bytes(storage, path) for path in files})
        by = difference(own, self.references.weights(self.program, self.environment))
        return [] if by <= TOLERANCE else [f"its weights differ by {by:g} from an undisturbed run's"]

    def other_applications(self, former: Sequence[str] = ()) -> list[str]:
        """That also did something for this training, when they had no right to."""
        steps = self.diary.entries("step")
        begun = min((entry.at for entry in steps if entry.application == self.job.id), default=0.0)
        trained = {entry.application for entry in steps if entry.application not in former or entry.at > begun} - {
            self.job.id
        }
        known = {each["id"] for each in applications(self.place.cluster, self.job.identity.tag)}
        others = trained | (known - {self.job.id, *former})
        return [f"other applications of this training: {sorted(others)}"] if others else []

    def left(self) -> list[str]:
        """What still runs or lies about, in words."""
        problems = []
        if processes := settled(self._processes):
            problems.append(f"processes left: {[process.words[:80] for process in processes]}")
        if folders := settled(lambda: self.place.work_folders(self.job.id)):
            problems.append(f"folders left: {folders}")
        if self.job.has_staging():
            problems.append("staging left")
        return problems

    def _processes(self) -> list[Seen]:
        applications = {entry.application for entry in self.diary.entries("started")} | {self.job.id}
        return [process for name in applications for process in processes_of(name)]

    def _did(self, status: JobStatus) -> str:
        where = self.resumed_steps()
        replaced = [task.name for task in status.tasks if task.attempt > 1]
        words = [f"went on from step {', '.join(map(str, where))}" if where else "went on without a restart"]
        if where or status.generation > 1:
            words.append(f"generation {status.generation}")
        if replaced:
            words.append(f"new container of {', '.join(replaced)}")
        if status.am_attempt > 1:
            words.append(f"application master number {status.am_attempt}")
        return "; ".join(words)


def applications(hadoop: HadoopCluster, tag: str) -> list[dict[str, Any]]:
    """All that the ResourceManager knows of one training."""
    url = f"{hadoop.services.active_resourcemanager()}/ws/v1/cluster/apps"
    found = hadoop.client(USER).get_json(url, applicationTags=tag)["apps"]
    return list((found or {}).get("app", []))


def _attempt(process: Seen) -> int:
    prefix = f"{contract.ENV_TASK_ATTEMPT}=".encode()
    return next(int(each[len(prefix) :]) for each in process.environment.split(b"\0") if each.startswith(prefix))


def _process(seen: Seen) -> Process:
    process = Process.of(seen.pid)
    assert process is not None, f"{seen.words} has ended meanwhile"
    return process
