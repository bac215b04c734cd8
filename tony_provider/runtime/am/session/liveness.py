"""Executors that are not heard of, that do not stop when told, and user processes that take no step."""

from __future__ import annotations

from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.course import Course
from tony_provider.runtime.am.session.executors import Executors
from tony_provider.runtime.am.session.losses import Losses
from tony_provider.runtime.am.session.restarts import Restarts
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.am.session.units import Units
from tony_provider.runtime.protocol import timing


class Liveness:
    """Times are the session's, in seconds."""

    def __init__(self, course: Course, units: Units, restarts: Restarts, losses: Losses, executors: Executors) -> None:
        self._course = course
        self._units = units
        self._restarts = restarts
        self._losses = losses
        self._executors = executors
        self.heartbeat_seconds = timing.heartbeat_interval(len(course.tasks))
        self.lost_after = timing.lost_after(self.heartbeat_seconds)

    def forgive(self, seconds: float, now: float) -> None:
        """The application master itself was not running for so long: messages may be waiting to be read."""
        for task in self._course.tasks:
            if task.heard_at is not None:
                task.heard_at = min(now, task.heard_at + seconds)
            process = task.process
            if process and process.moved_at is not None:
                process.moved_at = min(now, process.moved_at + seconds)
            if process and process.stop_by is not None:
                process.stop_by += seconds

    def tick(self, now: float) -> None:
        for task in self._course.tasks:
            if task.has_container and not task.told_to_stop and not task.given_up:
                self._look_at_silence(task, now)
                self._look_at_stop(task, now)
        self._look_at_stalls(now)

    def _look_at_silence(self, task: Task, now: float) -> None:
        if task.heard_at is not None and now - task.heard_at > self.lost_after:
            self._losses.silent(task, now - task.heard_at, now)

    def _look_at_stop(self, task: Task, now: float) -> None:
        process = task.process
        if process is None or process.settled or process.stop_by is None or now < process.stop_by:
            return
        if process.end is None:
            self._losses.not_stopped(task, now)
        else:
            self._executors.settled(task, process.start, "its last copies took too long", now)

    def _look_at_stalls(self, now: float) -> None:
        limit = self._course.job.timeouts.stall
        if limit is None:
            return
        running = [task for task in self._course.tasks if task.role.is_tracked and _runs(task)]
        # Often only the chief reports its steps: where some do, the others are not expected to.
        reporting = [task for task in running if task.process and task.process.step is not None]
        for task in reporting or running:
            moved_at = task.process.moved_at if task.process else None
            # It may have taken one since its last heartbeat.
            idle = moved_at is not None and now - moved_at >= limit + self.heartbeat_seconds
            if idle and self._units.preparing(task) is None and not self._units.of(task).judge.pending:
                self._restarts.trouble(task, failures.of_stall(task, limit), now)


def _runs(task: Task) -> bool:
    process = task.process
    if process is None or process.started_at is None or task.told_to_stop:
        return False
    return process.runs and not task.is_uploading
