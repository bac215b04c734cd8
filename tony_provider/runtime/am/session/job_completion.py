"""How the job ends: the verdict, the stop of every task, and the last word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import Finish, PublishOutputs, Verdict
from tony_provider.runtime.am.session.containers.containers import Containers
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, TaskState
from tony_provider.runtime.quantities import count
from tony_provider.runtime.spec.model import Role, SuccessRule
from tony_provider.runtime.text import first_line

_SUCCESS = "the job has succeeded"


class JobCompletion:
    """Times are the session's, in seconds."""

    def __init__(self, state: SessionState, containers: Containers) -> None:
        self._state = state
        self._containers = containers
        self._evaluators_until: Optional[float] = None
        self._evaluators = [task for task in state.tasks if task.role is Role.EVALUATOR]
        self._looking_at = 0  # a task that has not succeeded, by the last look
        self._published: Optional[bool] = None  # outputs; None: it has not begun

    def fail(self, failure: Failure, now: float) -> None:
        self._conclude(Verdict(FinalStatus.FAILED, failure.message, failure), now, "the job has failed")

    def kill(self, reason: str, now: float, grace: Optional[float] = None) -> None:
        verdict = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
        self._conclude(verdict, now, reason, grace)

    def hurry(self, now: float, grace: Optional[float]) -> None:
        """The job is ending already."""
        if not grace:
            self._containers.shutdowns.hurry(now)
            return
        for task in self._state.tasks:
            self._containers.shutdowns.ask(task, now, "the job is asked again to end", grace)

    def stop(self, task: Task, now: float, reason: str, grace: Optional[float] = None) -> None:
        """Have one task end for good."""
        task.told_to_stop = True
        self._state.emit(*self._containers.gang.withdraw(task))
        grace = self._state.job.timeouts.grace if grace is None else grace
        self._containers.shutdowns.ask(task, now, reason, grace)
        if not task.has_container:
            task.container_gone()
            if not task.ended:
                task.enter(TaskState.STOPPED)

    def look_at_success(self, now: float) -> None:
        """End the job once every task that decides has succeeded, and the evaluators have had their time."""
        if self._evaluators_until is None:
            if not self._is_decided():
                return
            # What was prepared, or made of it, is no success of those that work with it.
            if all(self._state.by_name[name].role is Role.ONCE for name in self._state.successes):
                self._nothing_succeeded(now)
                return
            self._evaluators_until = now + self._state.job.timeouts.evaluator
            self._stop_others(now)
        running = [task for task in self._evaluators if not task.ended]
        if not running or now >= self._evaluators_until:
            self._conclude(Verdict(FinalStatus.SUCCEEDED, self._success), now, _SUCCESS)

    def _stop_others(self, now: float) -> None:
        state = self._state
        state.enter(JobState.FINISHING)
        message = f"{self._who} has succeeded; stopping the others"
        state.parts = self._parts()
        data = {**_noted(Verdict(FinalStatus.SUCCEEDED, self._success)), "parts": to_plain(list(state.parts))}
        state.note("stopping", message, data=data)
        for task in state.tasks:
            if task.role is not Role.EVALUATOR or task.ended or task.waits:
                self.stop(task, now, _SUCCESS)

    def take_over(self, verdict: Verdict, parts: Sequence[OutputPart], now: float) -> None:
        """A former application master was ending the job: its tasks were told to stop, and none starts again.

        ``parts`` are those of outputs that count.
        """
        self._state.parts = tuple(parts)
        if verdict.status is FinalStatus.SUCCEEDED and not self._any:
            for task in self._deciders():
                task.enter(TaskState.SUCCEEDED)  # or there would be no such verdict
        self._conclude(verdict, now, verdict.message)

    @property
    def _any(self) -> bool:
        """Whether one success is enough."""
        return self._state.job.success is SuccessRule.ANY

    @property
    def _who(self) -> str:
        if self._any:
            return "one of the tasks that decide"
        return "every task that decides and was not given up" if self._given_up else "every task that decides"

    @property
    def _success(self) -> str:
        if not self._given_up:
            return _SUCCESS
        failed = f"{len(self._given_up)} of {count(len(self._state.tasks), 'task')} failed"
        return f"{_SUCCESS}; {failed}, which is tolerated (tolerated_failures)"

    @property
    def _given_up(self) -> list[Task]:
        return [task for task in self._state.tasks if task.given_up and task.role is Role.WORKER]

    def _nothing_succeeded(self, now: float) -> None:
        """No failure of all that decide is one that the job could go on after."""
        failure = next((task.failure for task in self._given_up if task.failure), None)
        if failure:
            message = f"every task that decides has failed, this one first: {failure.message}"
            self.fail(attrs.evolve(failure, message=message), now)

    def _is_decided(self) -> bool:
        """Asked after each of the messages of thousands of executors, like ``_all_over``."""
        return (self._any and bool(self._state.successes)) or self._all_over()

    def _all_over(self) -> bool:
        """It begins where it ended the last time."""
        tasks = self._state.tasks
        for _ in tasks:
            task = tasks[self._looking_at % len(tasks)]
            if task.decisive and not task.absent and not task.given_up and task.state is not TaskState.SUCCEEDED:
                return False
            self._looking_at = (self._looking_at + 1) % len(tasks)
        return True

    def _deciders(self) -> list[Task]:
        return [task for task in self._state.tasks if task.decisive and not task.absent and not task.given_up]

    def check(self) -> None:
        """Say the last word once nothing is left to wait for."""
        state = self._state
        if state.verdict is None or state.finished or not self._containers.shutdowns.done:
            return
        if self._still_publishes(state.verdict):
            return
        state.enter(JobState(state.verdict.status.value))
        for task in state.tasks:
            if not task.ended:
                task.enter(TaskState.STOPPED)
        state.emit(Finish(state.verdict))

    def _parts(self) -> tuple[OutputPart, ...]:
        """What those that have succeeded by now left for outputs. Whoever is stopped from now on leaves nothing."""
        succeeded = [task for task in self._state.tasks if task.state is TaskState.SUCCEEDED and task.process]
        ends = [task.process.end for task in succeeded if task.process]
        return tuple(part for end in ends if end for part in end.outputs)

    def _still_publishes(self, verdict: Verdict) -> bool:
        """Whether the outputs of a job that has succeeded are not at their paths yet."""
        if self._published is None and verdict.status is FinalStatus.SUCCEEDED and self._state.job.outputs:
            self._published = False
            self._state.emit(PublishOutputs(self._state.parts))
        return self.publishing

    @property
    def publishing(self) -> bool:
        """Whether outputs are on their way to their paths."""
        return self._published is False

    def outputs_published(self, problem: str) -> None:
        """They are, or ``problem`` says why they will never be: then the job has failed after all."""
        self._published = True
        if problem:
            message = f"the tasks have succeeded, and what they left cannot be published: {problem}"
            verdict = Verdict(FinalStatus.FAILED, message, Failure(FailureKind.OUTPUT, message))
            self._state.verdict = verdict
            self._state.note("verdict", f"FAILED: {first_line(message)}", data=_noted(verdict))

    def _conclude(self, verdict: Verdict, now: float, reason: str, grace: Optional[float] = None) -> None:
        state = self._state
        if state.verdict:
            return
        state.verdict = verdict
        state.enter(JobState.FINISHING)
        state.note("verdict", f"{verdict.status.value}: {first_line(verdict.message)}", data=_noted(verdict))
        state.emit(*self._containers.gang.cancel_all())
        for task in state.tasks:
            if not task.told_to_stop:
                self.stop(task, now, reason, grace)


def _noted(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": to_plain(verdict)}
