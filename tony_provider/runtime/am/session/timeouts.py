"""Timeouts of the session: deadlines, lost executors, and stalled processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.session_state import Part, SessionContext, Settlement, Task
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState

_ASLEEP = 5.0  # seconds; after a longer time between two ticks, the master itself was not running


class Timers(Part):
    """Session component that checks deadlines of the job and of its tasks."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self._timeouts = self._state.job.timeouts
        self._started = 0.0
        self._ticked: Optional[float] = None

    def start(self, started: float) -> None:
        """Set the time when the application began."""
        self._started = started

    def tick(self, now: float) -> None:
        """Check every deadline."""
        self._forgive_own_sleep(now)
        if self._state.verdict is None:
            self._check_lifetime(now)
            self._suspension.check_windows(now)
            self._check_queue(now)
            self._check_starts(now)
            self._context.liveness.tick(now)
            self._context.elastic.check(now)
            self._context.spare_room.tick(now)
        self._containers.tick(now)

    def _forgive_own_sleep(self, now: float) -> None:
        asleep = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if asleep > _ASLEEP:
            self._context.liveness.forgive(asleep, now)

    def _check_queue(self, now: float) -> None:
        missing = self._containers.gang.timed_out(now) if self._state.phase is JobState.WAITING else None
        if missing:
            self._completion.fail(Failure(FailureKind.QUEUE_TIMEOUT, missing), now)

    def _check_lifetime(self, now: float) -> None:
        if over := [reason for end, reason in self._ends() if now >= end]:
            self._completion.kill(over[0], now)

    def _ends(self) -> Iterator[tuple[float, str]]:
        lifetime, deadline = self._timeouts.lifetime, self._timeouts.deadline
        if lifetime is not None:
            yield self._started + lifetime, f"the job's lifetime of {lifetime:g} s (timeouts.lifetime) is over"
        if deadline is not None:
            yield deadline - self._state.epoch, "the job's deadline (timeouts.deadline) has passed"

    # ---- missing containers and executors ----------------------------------------------------------------------

    def _check_starts(self, now: float) -> None:
        late = [
            task for task in self._state.tasks if task.deadline is not None and now >= task.deadline and not task.ending
        ]
        not_registered = [task for task in late if task.state is TaskState.STARTING]
        not_replaced = [task for task in late if task.state is TaskState.REQUESTED]
        if not_registered:
            self._context.container_failures.not_registered(not_registered, now)
        # After the success of the deciding tasks, only timeouts.evaluator limits the evaluators.
        if not_replaced and self._state.verdict is None and self._state.phase is not JobState.FINISHING:
            self._context.elastic.not_replaced(not_replaced, now)


class Liveness(Part):
    """Session component that detects lost executors and stalled processes."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self.heartbeat_seconds = limits.heartbeat_interval(self._state.job.size)
        self.lost_after = limits.lost_after(self.heartbeat_seconds)

    def forgive(self, seconds: float, now: float) -> None:
        """Extend all deadlines by ``seconds``: the master itself was not running, and messages may be unread."""
        for task in self._state.tasks:
            if task.heard_at is not None:
                task.heard_at = min(now, task.heard_at + seconds)
            process = task.process
            if process and process.moved_at is not None:
                process.moved_at = min(now, process.moved_at + seconds)
            if process and process.stop_by is not None:
                process.stop_by += seconds

    def tick(self, now: float) -> None:
        for task in self._state.tasks:
            if task.has_container and not task.ending:
                self._check_silence(task, now)
                self._check_stop(task, now)
        self._check_stalls(now)

    def _check_silence(self, task: Task, now: float) -> None:
        if task.heard_at is not None and now - task.heard_at > self.lost_after:
            self._context.container_failures.silent(task, now - task.heard_at, now)

    def _check_stop(self, task: Task, now: float) -> None:
        process = task.process
        if process is None or process.settled or process.stop_by is None or now < process.stop_by:
            return
        if process.end is None:
            self._context.container_failures.not_stopped(task, now)
        else:
            self._context.reports.settled(task, Settlement(process.start, "copying checkpoints took too long"), now)

    def _check_stalls(self, now: float) -> None:
        limit = self._state.job.timeouts.stall
        if limit is None:
            return
        running = [task for task in self._state.tasks if task.role.is_tracked and _runs(task)]
        # Often only the chief reports steps. If some tasks report steps, the other tasks need not report any.
        reporting = [task for task in running if task.process and task.process.step is not None]
        for task in reporting or running:
            moved_at = task.process.moved_at if task.process else None
            # The process may have taken a step since its last heartbeat.
            idle = moved_at is not None and now - moved_at >= limit + self.heartbeat_seconds
            if idle and self._groups.preparing(task) is None and not self._groups.of(task).root_cause.pending:
                self._restarts.record_failure(task, failures.of_stall(task, limit), now)


def _runs(task: Task) -> bool:
    return task.process is not None and task.process.is_running and not task.ending and not task.is_uploading
