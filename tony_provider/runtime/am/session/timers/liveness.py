"""Signs of life: executors that are silent or do not stop when told, and user processes that take no step."""

from __future__ import annotations

from tony_provider.runtime.am.session.executor_reports import ExecutorReports
from tony_provider.runtime.am.session.restarts import failures
from tony_provider.runtime.am.session.restarts.container_failures import ContainerFailures
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.process_state import Settlement
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol import timing


class Liveness:
    """The part of the session that looks for executors and processes which give no sign of life.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        groups: RestartGroups,
        restarts: Restarts,
        container_failures: ContainerFailures,
        executors: ExecutorReports,
    ) -> None:
        self._state = state
        self._groups = groups
        self._restarts = restarts
        self._container_failures = container_failures
        self._reports = executors
        self.heartbeat_seconds = timing.heartbeat_interval(state.job.size)
        self.lost_after = timing.lost_after(self.heartbeat_seconds)

    def forgive(self, seconds: float, now: float) -> None:
        """Give everybody so many seconds more: the master itself was not running, and messages may wait to be read."""
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
            if task.has_container and not task.told_to_stop:
                self._look_at_silence(task, now)
                self._look_at_stop(task, now)
        self._look_at_stalls(now)

    def _look_at_silence(self, task: Task, now: float) -> None:
        if task.heard_at is not None and now - task.heard_at > self.lost_after:
            self._container_failures.silent(task, now - task.heard_at, now)

    def _look_at_stop(self, task: Task, now: float) -> None:
        process = task.process
        if process is None or process.settled or process.stop_by is None or now < process.stop_by:
            return
        if process.end is None:
            self._container_failures.not_stopped(task, now)
        else:
            self._reports.settled(task, Settlement(process.start, "its last copies took too long"), now)

    def _look_at_stalls(self, now: float) -> None:
        limit = self._state.job.timeouts.stall
        if limit is None:
            return
        running = [task for task in self._state.tasks if task.role.is_tracked and _runs(task)]
        # Often only the chief reports its steps: where some do, the others are not expected to.
        reporting = [task for task in running if task.process and task.process.step is not None]
        for task in reporting or running:
            moved_at = task.process.moved_at if task.process else None
            # It may have taken one since its last heartbeat.
            idle = moved_at is not None and now - moved_at >= limit + self.heartbeat_seconds
            if idle and self._groups.preparing(task) is None and not self._groups.of(task).root_cause.pending:
                self._restarts.trouble(task, failures.of_stall(task, limit), now)


def _runs(task: Task) -> bool:
    process = task.process
    if process is None or process.started_at is None or task.told_to_stop:
        return False
    return process.runs and not task.is_uploading
