"""The course of a job, from its containers to its verdict: what follows from what, whoever brought it about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import Action, Finish, LaunchTask, Note, Release, SendRendezvous, Verdict
from tony_provider.runtime.am.session.ending import Ending
from tony_provider.runtime.am.session.gang import Gang
from tony_provider.runtime.am.session.judge import Judge
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, TaskState
from tony_provider.runtime.spec.model import JobSpec, Role

MOST_REPLACEMENTS = 3  # containers of one task lost before the gang started


class Course:
    """The state that the session and its deadlines share. ``out`` are the actions that were not taken yet."""

    def __init__(self, job: JobSpec, decisive: Sequence[str], jitter: Callable[[], float]) -> None:
        self.job = job
        self.tasks = [
            Task(name, index, job.role(name), spec, name in decisive)
            for name, spec in job.tasks.items()
            for index in range(spec.instances)
        ]
        self.phase = JobState.WAITING
        self.generation = 0
        self.verdict: Optional[Verdict] = None
        self.warnings: list[str] = []
        self.gang = Gang(job, self.tasks, jitter)
        self.judge = Judge(self.tasks)
        self.ending = Ending(self.tasks)
        self.by_name = {task.name: task for task in self.tasks}
        self.by_container: dict[str, Task] = {}
        self.out: list[Action] = []
        self._evaluators_until: Optional[float] = None

    @property
    def finished(self) -> bool:
        return self.phase.is_final

    def note(self, event: str, message: str, task: Optional[Task] = None) -> None:
        self.out.append(Note(event, message, task.name if task else None))

    def taken(self) -> list[Action]:
        """Hand the actions over."""
        out, self.out = self.out, []
        return out

    def check(self, now: float) -> None:
        """What follows from the state. To be called after each change."""
        if self.verdict is None:
            cause = self.judge.cause(now)
            if cause:
                self.fail(cause, now)
            elif self.phase is JobState.STARTING:
                self._rendezvous()
            elif self.generation and not self.judge.pending:
                self._look_at_success(now)
        if self.verdict and not self.finished and self.ending.done:
            self._finish(self.verdict)

    # ---- starting ----------------------------------------------------------------------------------------------

    def launch(self, task: Task, container: Container, now: float) -> None:
        task.state, task.launched = TaskState.STARTING, True
        task.deadline = now + self.job.timeouts.registration
        self.out.append(LaunchTask(task.name, task.attempt, container))

    def launch_all(self, now: float) -> None:
        """The gang is complete."""
        self.phase = JobState.STARTING
        self.note("gang_complete", f"all {words.count(len(self.tasks), 'container')} are there")
        for task in self.tasks:
            if task.container:
                self.launch(task, task.container, now)

    def lost_before_start(self, task: Task, failure: Failure, now: float) -> None:
        """Nothing has run yet, so another container costs little."""
        if self.phase is not JobState.STARTING or task.replaced >= MOST_REPLACEMENTS:
            self.task_failed(task, failure, now)
            return
        if task.container and not task.container_ended:
            self.by_container.pop(task.container.id, None)
            self.out.append(Release((task.container.id,)))
        task.back_to_request()
        task.deadline = now + self.job.timeouts.allocation
        self.note("replaced", f"asking for another container: {failure.message}", task)
        self.out.append(self.gang.ask([task]))

    def cluster(self) -> ClusterSpec:
        return ClusterSpec(
            self.generation,
            tuple(
                TaskAddress(task.type, task.index, task.role, task.host, task.ports) for task in self.tasks if task.host
            ),
        )

    def _rendezvous(self) -> None:
        missing = [task for task in self.tasks if task.state is not TaskState.REGISTERED]
        if any(not (task.role is Role.SIDECAR and task.ended) for task in missing):
            return
        self.generation += 1
        self.phase = JobState.RUNNING
        self.note("rendezvous", f"generation {self.generation} with {words.count(len(self.tasks), 'task')}")
        names = tuple(task.name for task in self.tasks if task.state is TaskState.REGISTERED)
        self.out.append(SendRendezvous(self.cluster(), dict.fromkeys(names, self.generation)))

    # ---- failing -----------------------------------------------------------------------------------------------

    def task_failed(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        """See Judge.failed. Of a side-car it is only a warning."""
        self.judge.failed(task, failure, now, doubtful=doubtful)
        self.note("failed", failure.message, task)
        if task.role is Role.SIDECAR:
            self.warnings.append(failure.message)
            self.out += self.gang.withdraw(task)

    def settle(self, task: Task, exit_status: int, diagnostics: str) -> None:
        """The cluster's word on a task that was killed by a signal."""
        better = failures.of_container(task, exit_status, diagnostics) if exit_status < 0 else None
        self.judge.settled(task, better)
        if better:
            self.note("failed", better.message, task)

    # ---- ending ------------------------------------------------------------------------------------------------

    def fail(self, failure: Failure, now: float) -> None:
        self._conclude(Verdict(FinalStatus.FAILED, failure.message, failure), now, "the job has failed")

    def kill(self, reason: str, now: float) -> None:
        self._conclude(Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason)), now, reason)

    def _look_at_success(self, now: float) -> None:
        if not all(task.state is TaskState.SUCCEEDED for task in self.tasks if task.decisive):
            return
        if self._evaluators_until is None:
            self.phase = JobState.FINISHING
            self._evaluators_until = now + self.job.timeouts.evaluator
            self.note("stopping", "every task that decides has succeeded; stopping the others")
            for task in self.tasks:
                if task.role is not Role.EVALUATOR or task.ended:
                    self._stop(task, now, "the job has succeeded")
        running = [task for task in self.tasks if task.role is Role.EVALUATOR and not task.ended]
        if not running or now >= self._evaluators_until:
            self._conclude(Verdict(FinalStatus.SUCCEEDED, "the job has succeeded"), now, "the job has succeeded")

    def _conclude(self, verdict: Verdict, now: float, reason: str) -> None:
        if self.verdict:
            return
        self.verdict = verdict
        self.phase = JobState.FINISHING
        self.note("verdict", f"{verdict.status.value}: {words.first_line(verdict.message)}")
        self.out += self.gang.cancel()
        for task in self.tasks:
            self._stop(task, now, reason)

    def _stop(self, task: Task, now: float, reason: str) -> None:
        if not task.told_to_stop:
            self.out += self.ending.stop(task, now, self.job.timeouts.grace, reason)

    def _finish(self, verdict: Verdict) -> None:
        self.phase = JobState(verdict.status.value)
        for task in self.tasks:
            if not task.ended:
                task.state = TaskState.STOPPED
        self.out.append(Finish(verdict))
