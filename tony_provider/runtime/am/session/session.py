"""The job's session: which task is where, what is to be done next, and how the job ends.

A pure state machine: inputs come as method calls with the time (seconds of a clock that never goes back), outputs are
lists of actions. It does no input or output of its own, so that every order of events can be tried in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import Action, Release, ResumePoint, SendRendezvous, Verdict
from tony_provider.runtime.am.session.course import Course
from tony_provider.runtime.am.session.deadlines import Deadlines
from tony_provider.runtime.am.session.history import History
from tony_provider.runtime.am.session.task import Beat, ProcessEnd, Task
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.spec.model import JobSpec, Role

_KILL_SIGNALS = (9, 15)


class Session:
    def __init__(self, job: JobSpec, framework: Framework, *, jitter: Callable[[], float], epoch: float = 0.0) -> None:
        """``jitter`` gives random numbers from 0 to 1; ``epoch`` + the session's time = seconds since the epoch."""
        self.course = Course(job, framework.decisive(job), jitter)
        self._deadlines = Deadlines(self.course)

    @property
    def tasks(self) -> Sequence[Task]:
        """By type as specified, then by index."""
        return self.course.tasks

    @property
    def phase(self) -> JobState:
        return self.course.phase

    @property
    def generation(self) -> int:
        return self.course.generation

    @property
    def verdict(self) -> Optional[Verdict]:
        """Once it is known; the tasks may still be ending."""
        return self.course.verdict

    @property
    def finished(self) -> bool:
        return self.course.finished

    def task(self, name: str) -> Optional[Task]:
        return self.course.by_name.get(name)

    @property
    def heartbeat_seconds(self) -> float:
        """How often an executor is to be heard of; for Welcome."""
        return timing.HEARTBEAT_INTERVAL

    def refusal(self, name: str, attempt: int, container_id: str) -> Optional[str]:
        """Why this executor may not speak (any more); None when it may."""
        task = self.task(name)
        if not (task and task.container and task.container.id == container_id and self.is_current(name, attempt)):
            return f"attempt {attempt} of {name} in {container_id} was replaced or ended"
        return None

    def commit_refusal(self, name: str, attempt: int, generation: int, start: int) -> Optional[str]:
        """Why this start of this task may not commit a checkpoint (any more); None when it may."""
        raise NotImplementedError

    def mirror_ranks(self) -> Sequence[tuple[str, int]]:
        """Name and rank of the tasks of the current generation whose checkpoints are copied to the store."""
        raise NotImplementedError

    def is_current(self, name: str, attempt: int) -> bool:
        """Whether this attempt of this task may speak: its container is the one that the session counts on."""
        return self._current(name, attempt) is not None

    # ---- the cluster -------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Ask for the gang's containers."""
        self._deadlines.start(now)
        self.course.out += self.course.gang.start(now)
        self.course.note("requested", self.course.gang.describe(now))
        return self.course.taken()

    def allocated(self, key: int, container: Container, now: float) -> list[Action]:
        course = self.course
        task = None if course.verdict else course.gang.granted(key, container, now)
        if task is None:
            course.out.append(Release((container.id,)))
            return course.taken()
        course.by_container[container.id] = task
        course.note("allocated", f"{container.id} on {container.node}", task)
        if course.phase is JobState.STARTING:
            course.launch(task, container, now)
        elif course.gang.complete:
            course.launch_all(now)
        return course.taken()

    def launch_failed(self, container_id: str, reason: str, now: float) -> list[Action]:
        task = self.course.by_container.pop(container_id, None)
        if task is None:
            return []
        if not task.released:
            self.course.out.append(Release((container_id,)))
        task.container_ended = True
        if not task.told_to_stop:
            self.course.lost_before_start(task, failures.of_launch(task, reason), now)
        return self._checked(now)

    def completed(self, container_id: str, exit_status: int, diagnostics: str, now: float) -> list[Action]:
        course = self.course
        task = course.by_container.pop(container_id, None)
        if task is None:
            return []
        task.container_ended = True
        task.connected = False
        course.note("container_completed", f"exit status {exit_status}", task)
        if task.told_to_stop:
            if not task.ended:
                task.state = TaskState.STOPPED
        elif not task.launched:
            task.container, task.state = None, TaskState.REQUESTED
            course.out.append(course.gang.ask([task]))
        elif course.judge.is_doubtful(task):
            course.settle(task, exit_status, diagnostics)
        elif not task.ended:
            self._container_failed(task, exit_status, diagnostics, now)
        return self._checked(now)

    def recover(self, containers: Sequence[Container], history: History, now: float) -> list[Action]:
        """Instead of ``start``, for a later application master: ``containers`` are those that its cluster listed."""
        raise NotImplementedError

    def preempting(self, container_ids: Sequence[str], seconds: Optional[float], now: float) -> list[Action]:
        """The cluster will take these containers back, in about that many seconds when known."""
        raise NotImplementedError

    def node_leaving(self, node: str, seconds: Optional[float], now: float) -> list[Action]:
        """The containers of a node (host:port) will end, in about that many seconds when known."""
        raise NotImplementedError

    def stop_requested(self, reason: str, now: float, *, grace: Optional[float] = None) -> list[Action]:
        """Somebody wants the job to end now; ``grace`` instead of timeouts.grace.

        Asked again, containers are taken away without grace.
        """
        if self.course.verdict:
            self.course.out += self.course.ending.hurry(now)
        else:
            self.course.kill(reason, now)
        return self._checked(now)

    def fail(self, kind: FailureKind, message: str, now: float) -> list[Action]:
        """End the job for a reason that is no task's."""
        self.course.fail(Failure(kind, message), now)
        return self._checked(now)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    def resume_chosen(self, generation: int, resume: Optional[ResumePoint], now: float) -> list[Action]:
        """The answer to ChooseResumePoint; None: there is no checkpoint."""
        raise NotImplementedError

    def resume_failed(self, generation: int, reason: str, now: float) -> list[Action]:
        """The store has not answered ChooseResumePoint for long."""
        raise NotImplementedError

    def checkpoint_committed(self, step: int, uri: str, now: float) -> list[Action]:
        raise NotImplementedError

    def checkpoint_requested(self, reason: str, now: float) -> list[Action]:
        """Somebody wants a checkpoint now."""
        raise NotImplementedError

    # ---- the executors -----------------------------------------------------------------------------------------

    def registered(
        self,
        name: str,
        attempt: int,
        host: str,
        ports: Mapping[str, int],
        generation: int,
        start: int,
        resumed_step: Optional[int],
        container_id: str,
        now: float,
    ) -> list[Action]:
        """An executor's stream is up.

        ``generation``, ``start`` and ``resumed_step`` are those of the newest rendezvous that reached it, 0 and None
        for none. What had ended by then it tells again.
        """
        task = self._current(name, attempt)
        if task is None:
            return []
        course = self.course
        task.connected, task.heard_at = True, now
        if not task.ended:
            task.trouble_at = None
        if task.told_to_stop:
            course.out += course.ending.stop(task, now, course.job.timeouts.grace, "the job has ended")
        elif task.state is TaskState.STARTING:
            task.state, task.deadline = TaskState.REGISTERED, None
            task.host, task.ports = host, dict(ports)
            course.note("registered", f"on {host}, ports {dict(ports)}", task)
        elif task.state is TaskState.REGISTERED and course.phase is JobState.RUNNING and generation < course.generation:
            course.out.append(SendRendezvous(course.cluster(), {name: course.generation}))
        return self._checked(now)

    def disconnected(self, name: str, attempt: int, now: float) -> list[Action]:
        """An executor's stream is down; it may come back."""
        task = self._current(name, attempt)
        if task:
            task.connected = False
            if not task.ended and task.trouble_at is None:
                task.trouble_at = now
        return []

    def heartbeat(self, name: str, attempt: int, beat: Beat, now: float) -> list[Action]:
        task = self._current(name, attempt)
        if task:
            task.heard_at = now
            task.rss_bytes, task.cpu_percent, task.activity = beat.rss_bytes, beat.cpu_percent, beat.activity
            task.progress = beat.progress or task.progress
        return []

    def settled(self, name: str, attempt: int, start: int, problem: str, now: float) -> list[Action]:
        """The last copies of checkpoints after a user process are over; ``problem`` is empty when they succeeded."""
        raise NotImplementedError

    def restore_failed(
        self, name: str, attempt: int, start: int, step: int, damaged: bool, reason: str, now: float
    ) -> list[Action]:
        """The resume point could not be put into a task's checkpoint directory."""
        raise NotImplementedError

    def process_started(self, name: str, attempt: int, start: int, now: float) -> list[Action]:
        task = self._current(name, attempt)
        if task:
            task.heard_at = now
            if task.state is TaskState.REGISTERED:
                task.state = TaskState.RUNNING
                self.course.note("started", f"user process of generation {self.course.generation}", task)
        return self.course.taken()

    def process_ended(self, name: str, attempt: int, end: ProcessEnd, now: float) -> list[Action]:
        task = self._current(name, attempt)
        if task is None or task.end:
            return []
        started = task.state is TaskState.RUNNING
        task.heard_at, task.end = now, end
        task.progress = end.progress or task.progress
        self.course.note("ended", words.process_end(end), task)
        if end.succeeded and task.role is not Role.PS:
            if not task.ended:
                task.state = TaskState.SUCCEEDED
        elif task.told_to_stop:
            if not task.ended:
                task.state = TaskState.STOPPED
        elif end.succeeded:
            self.course.task_failed(task, failures.of_early_end(task), now)
        else:
            # YARN kills all processes of a container at once: its word on why comes a little later.
            doubtful = not end.out_of_memory and (end.stopped or end.signal in _KILL_SIGNALS)
            self.course.task_failed(task, failures.of_process(task, end, started=started), now, doubtful=doubtful)
        return self._checked(now)

    # ---- the clock ---------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Action]:
        """To be called about once a second."""
        if self.course.finished:
            return []
        self._deadlines.tick(now)
        return self._checked(now)

    def _current(self, name: str, attempt: int) -> Optional[Task]:
        task = self.course.by_name.get(name)
        if task is None or task.attempt != attempt or not task.launched or task.container_ended:
            return None
        return task

    def _container_failed(self, task: Task, exit_status: int, diagnostics: str, now: float) -> None:
        failure = failures.of_container(task, exit_status, diagnostics)
        if self.course.phase is JobState.STARTING and exit_status in words.NODE_TROUBLE:
            self.course.lost_before_start(task, failure, now)
        else:
            self.course.task_failed(task, failure, now)

    def _checked(self, now: float) -> list[Action]:
        self.course.check(now)
        return self.course.taken()
