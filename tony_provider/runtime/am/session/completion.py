"""The end of the job and of single tasks.

``JobCompletion`` decides the verdict and stops all tasks. ``FinishedTasks`` releases the containers of finished
tasks. ``EarlyEnds`` decides whether a parameter server that ended by itself fails the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.actions import Finish, FlushEvents, PublishOutputs, Verdict
from tony_provider.runtime.am.session.session_state import (
    Part,
    ProcessEnd,
    ProcessState,
    SessionContext,
    Task,
    TaskOutcome,
    ended_record,
)
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.model import Role, SuccessRule, in_cluster
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, TaskState

_SUCCESS = "the job has succeeded"


class JobCompletion(Part):
    """Session component that decides the result of the job and ends it."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._evaluators_until: Optional[float] = None
        self._evaluators = [task for task in self._state.tasks if task.role is Role.EVALUATOR]
        self._checked_from = 0  # index of the task at which the last check stopped
        self._published: Optional[bool] = None  # False while outputs are being published, True afterwards; None before

    def fail(self, failure: Failure, now: float) -> None:
        self._conclude(Verdict(FinalStatus.FAILED, failure.message, failure), now, "the job has failed")

    def kill(self, reason: str, now: float, grace: Optional[float] = None) -> None:
        verdict = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
        self._conclude(verdict, now, reason, grace)

    def hurry(self, now: float, grace: Optional[float]) -> None:
        """Shorten the end of a job that is already ending. Without a grace period, release all containers."""
        if not grace:
            self._containers.shutdowns.hurry(now)
            return
        for task in self._state.tasks:
            self._containers.shutdowns.ask(task, now, "the job received another order to end", grace)

    def stop(self, task: Task, now: float, reason: str, grace: Optional[float] = None) -> None:
        """Stop one task permanently."""
        task.ending = True
        self._state.emit(*self._containers.gang.withdraw(task))
        grace = self._state.job.timeouts.grace if grace is None else grace
        self._containers.shutdowns.ask(task, now, reason, grace)
        if not task.has_container:
            task.container_gone()
            if not task.ended:
                task.enter(TaskState.STOPPED)

    def conclude_if_decided(self, now: float) -> None:
        """End the job once every deciding task has succeeded and the evaluators have ended or used up their time."""
        if self._evaluators_until is None:
            if not self._is_decided():
                return
            # Preparation tasks alone are no success if all tasks that use their results have failed.
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
        message = f"{self._who} has succeeded; stopping the other tasks"
        state.parts = self._parts()
        data = {**_noted(Verdict(FinalStatus.SUCCEEDED, self._success)), "parts": to_plain(list(state.parts))}
        state.note("stopping", message, data=data)
        for task in state.tasks:
            if task.role is not Role.EVALUATOR or task.ended or task.waits_for_types:
                self.stop(task, now, _SUCCESS)

    def take_over(self, verdict: Verdict, parts: Sequence[OutputPart], now: float) -> None:
        """Continue to end a job that a former application master was ending.

        Stop all tasks and restart none. ``parts`` are the parts of outputs to publish.
        """
        self._state.parts = tuple(parts)
        if verdict.status is FinalStatus.SUCCEEDED and not self._any:
            for task in self._deciders():
                task.enter(TaskState.SUCCEEDED)  # the verdict implies their success
        self._conclude(verdict, now, verdict.message)

    @property
    def _any(self) -> bool:
        """Whether the success of a single task is enough."""
        return self._state.job.success is SuccessRule.ANY

    @property
    def _who(self) -> str:
        if self._any:
            return "a deciding task"
        return "every deciding task that was not given up" if self._given_up else "every deciding task"

    @property
    def _success(self) -> str:
        if not self._given_up:
            return _SUCCESS
        failed = f"{len(self._given_up)} of {count(len(self._state.tasks), 'task')} failed"
        return f"{_SUCCESS}; {failed}, within tolerated_failures"

    @property
    def _given_up(self) -> list[Task]:
        return [task for task in self._state.tasks if task.given_up and task.role is Role.WORKER]

    def _nothing_succeeded(self, now: float) -> None:
        """Fail the job if all deciding tasks have failed, although each failure alone would be tolerated."""
        if failure := next((task.failure for task in self._given_up if task.failure), None):
            message = f"all deciding tasks have failed; the first failure: {failure.message}"
            self.fail(attrs.evolve(failure, message=message), now)

    def _is_decided(self) -> bool:
        """Return whether the deciding tasks have succeeded. Must be fast, because it follows every executor message."""
        return (self._any and bool(self._state.successes)) or self._all_over()

    def _all_over(self) -> bool:
        """Return whether all deciding tasks have succeeded, were given up, or are left out.

        To save time, the check starts at the task at which the last check stopped.
        """
        tasks = self._state.tasks
        for _ in tasks:
            task = tasks[self._checked_from % len(tasks)]
            if task.decisive and not task.left_out and not task.given_up and task.state is not TaskState.SUCCEEDED:
                return False
            self._checked_from = (self._checked_from + 1) % len(tasks)
        return True

    def _deciders(self) -> list[Task]:
        return [task for task in self._state.tasks if task.decisive and not task.left_out and not task.given_up]

    def finish_if_stopped(self) -> None:
        """Finish the job once it has no more containers or outputs to wait for."""
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
        """Return the parts of outputs of all tasks that have succeeded. Tasks that are stopped later do not count."""
        ends = [task.end for task in self._state.tasks if task.state is TaskState.SUCCEEDED]
        return tuple(part for end in ends if end for part in end.outputs)

    def _still_publishes(self, verdict: Verdict) -> bool:
        """Publish the outputs of a successful job, if it has any. Return whether the publication is still under way."""
        if self._published is None and verdict.status is FinalStatus.SUCCEEDED and self._state.job.outputs:
            self._published = False
            self._state.emit(PublishOutputs(self._state.parts))
        return self.publishing

    @property
    def publishing(self) -> bool:
        """Whether outputs are being published."""
        return self._published is False

    def outputs_published(self, problem: str) -> None:
        """Record that publishing the outputs has ended. A non-empty ``problem`` is the error that fails the job."""
        self._published = True
        if problem:
            message = f"the tasks have succeeded, but their outputs cannot be published: {problem}"
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
            if not task.ending:
                self.stop(task, now, reason, grace)


def _noted(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": to_plain(verdict)}


class FinishedTasks(Part):
    """Session component that releases the containers of finished tasks."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        members = {task.name for task in self._groups.gang.members}
        # Precomputed so that large jobs skip the scan of their tasks.
        self._outlives_gang = any(task.decisive and task.name not in members for task in self._state.tasks)

    def check(self, task: Task, now: float) -> None:
        """Record that a task has finished. ``release`` releases its container once the record is on the store.

        The members of a gang keep their containers until all members have succeeded, because a failure of any member
        restarts all members.
        """
        if not self._groups.of(task).is_gang:
            if self._is_over(task):
                self._finish(task)
        elif self._outlives_gang and self._is_running and self._groups.gang_has_succeeded:
            for member in self._groups.gang.members:
                if self._is_over(member):
                    self._finish(member)
                elif member.left_out:
                    self.do_without(member, now)

    def _finish(self, task: Task) -> None:
        if not task.recorded:
            end = task.end
            outputs = list(end.outputs) if end else []
            model_dir = end.model_dir if end else ""
            outcome = TaskOutcome(None, model_dir, task.progress, task.parameters, outputs)
            data = {"tasks": {task.name: ended_record(task, outcome)}}
            if task.has_container:
                self._state.note("over", "the task has succeeded; releasing its container", task, data)
                self._state.emit(FlushEvents(task.name, task.attempt))
            else:
                self._state.note("over", "the task has succeeded", task, data)
        if not task.has_container:
            task.released = True  # its container was lost

    def release(self, task: Task, now: float) -> None:
        """Release the container of a finished task, because the event log on the store contains the task's end."""
        if self._is_over(task) and task.recorded:
            task.released = True
            self._containers.dismiss(task, now, "the task has succeeded")

    def _is_over(self, task: Task) -> bool:
        """Return whether a task has succeeded, has reported everything, and is not about to restart."""
        if task.state is not TaskState.SUCCEEDED or task.process is None or not task.process.settled:
            return False
        if task.ending or task.role is Role.PS:
            return False
        return self._is_running and self._groups.preparing(task) is None

    @property
    def _is_running(self) -> bool:
        return self._state.phase not in (JobState.RECOVERING, JobState.FINISHING)

    def do_without(self, task: Task, now: float) -> None:
        """Release the container of a task, or cancel its request, because its gang has succeeded without it."""
        self._containers.dismiss(task, now, "the other tasks have succeeded")
        self._state.emit(*self._containers.gang.withdraw(task))
        task.container_gone()
        task.deadline = None
        if not task.ended:
            task.enter(TaskState.LOST)
            self._state.note("not_needed", "the gang has succeeded; requesting no container for this task", task)

    def do_without_the_rest(self, now: float) -> None:
        """Release the parameter servers and the missing tasks of a gang that has succeeded."""
        for task in self._groups.gang.members:
            succeeded = task.state is TaskState.SUCCEEDED and task.role is not Role.PS
            if not succeeded and not task.done:
                self.do_without(task, now)

    def do_without_the_lost(self, now: float) -> None:
        """Continue without the lost tasks of a gang that has succeeded, such as parameter servers."""
        for task in self._groups.gang.members:
            if not task.has_container and not task.done:
                self.do_without(task, now)

    def tolerates(self, task: Task) -> bool:
        """Return whether the job continues after the final failure of this task."""
        if task.role is Role.SIDECAR:
            return True
        if not self._may_fail(task):
            return False
        return sum(1 for each in self._state.tasks if each.given_up and self._may_fail(each)) < self._most

    def too_many(self, task: Task) -> str:
        """Return the reason to fail the job after a failure that ``tolerated_failures`` covers, or an empty string."""
        if not self._most or not self._may_fail(task):
            return ""
        return f"more failures than tolerated_failures allows ({self._most})"

    def _may_fail(self, task: Task) -> bool:
        return task.role is Role.WORKER and not self._groups.of(task).is_gang

    @property
    def _most(self) -> int:
        return self._state.job.most_failures

    def give_up(self, task: Task, failure: Failure, now: float) -> None:
        """Continue the job without this task."""
        self._containers.dismiss(task, now, "the task is given up")
        self._state.emit(*self._containers.gang.withdraw(task))
        group = self._groups.of(task)
        group.forget_start()
        task.fail(failure, TaskState.FAILED)
        self._record(task, failure)
        data: dict[str, Any] = {"tasks": {task.name: ended_record(task, TaskOutcome(failure=failure))}}
        if group.decided:
            group.decided, data["restarting"] = False, {group.name: False}
        self._state.note("given_up", first_line(failure.message), task, data)

    def _record(self, task: Task, failure: Failure) -> None:
        task.given_up = True
        self._state.warnings.append(failure.message)

    def remember(self, outcomes: Mapping[str, Optional[TaskOutcome]]) -> None:
        """Take over the outcomes of tasks that finished under former masters, so that these tasks do not run again."""
        for task in self._state.tasks:
            outcome = outcomes.get(task.name)
            if outcome is None:
                continue
            task.container_gone()
            task.recorded = True
            if outcome.failure:
                task.fail(outcome.failure, TaskState.FAILED)
                self._record(task, outcome.failure)
            else:
                outputs = tuple(outcome.outputs)
                end = ProcessEnd(task.start, model_dir=outcome.model_dir, progress=outcome.progress, outputs=outputs)
                task.process = ProcessState(task.start, self._state.generation.number, end=end, settled=True)
                task.progress, task.parameters, task.released = outcome.progress, outcome.parameters, True
                task.enter(TaskState.SUCCEEDED)


class EarlyEnds(Part):
    """Session component that decides whether a parameter server that ended by itself fails the job."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        # Other tasks may need the grace period to end, and their executors may report the end only one heartbeat later.
        self._wait = self._state.job.timeouts.grace + limits.heartbeat_interval(self._state.job.size)
        self._ended: dict[str, tuple[ProcessState, float]] = {}  # process and time of its end, by task name

    def ended(self, task: Task, process: ProcessState, now: float) -> None:
        """Record that a parameter server has ended with exit code 0 without an order to stop."""
        task.enter(TaskState.SUCCEEDED)
        self._ended[task.name] = process, now
        self._state.note("early_end", f"ended early; waiting {self._wait:g} s for the other tasks to succeed", task)

    def explains(self, task: Task, failure: Failure, now: float) -> bool:
        """Return whether an early end has caused a task's failure, which then needs no other handling."""
        if not in_cluster(task.role) or not self._left():
            return False
        task.fail(failure, TaskState.FAILED)
        self._state.note("failed", failure.message, task)
        if task.decisive:
            self._fail(now)
        return True

    def check(self, now: float) -> None:
        """Fail the job if the deciding tasks have not succeeded in time after an early end."""
        if self._state.phase is not JobState.RUNNING or not self._ended:
            return
        left = self._left()
        if left and now >= min(since for _, since in left.values()) + self._wait and not self._end_in_sight():
            self._fail(now)

    def _left(self) -> dict[str, tuple[ProcessState, float]]:
        """Return the early ends of processes that are still the newest of their tasks."""
        known = self._state.by_name
        self._ended = {name: left for name, left in self._ended.items() if known[name].process is left[0]}
        return self._ended

    def _end_in_sight(self) -> bool:
        """Return whether all deciding tasks are about to succeed, or a lost executor may explain the delay."""
        if any(task.silent for task in self._state.tasks):
            return True
        return not any(_is_undecided(task) for task in self._state.tasks)

    def _fail(self, now: float) -> None:
        """Fail the job with the first early end as its cause."""
        name, (_, since) = min(self._left().items(), key=lambda item: item[1][1])
        task = self._state.by_name[name]
        others = [other for other in self._state.tasks if _is_undecided(other)]
        failure = failures.of_early_end(task, others, now - since)
        task.fail(failure, TaskState.FAILED)
        self._state.note("failed", failure.message, task)
        self._completion.fail(failure, now)


def _is_undecided(task: Task) -> bool:
    """Return whether a task decides the job's result, uses parameter servers, and is not about to succeed."""
    decides = task.decisive and in_cluster(task.role) and not task.left_out
    return decides and task.state is not TaskState.SUCCEEDED and not task.is_uploading
