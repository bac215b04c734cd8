"""What happens when nothing happens: the session's clock."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.course import Course
from tony_provider.runtime.am.session.task import Task
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.spec.model import Role

LOST_AFTER = max(3 * timing.HEARTBEAT_INTERVAL, 15.0)  # seconds of silence
_ASLEEP = 5.0  # seconds between two ticks after which the application master itself was not running


class Deadlines:
    def __init__(self, course: Course) -> None:
        self._course = course
        self._job = course.job
        self._started = 0.0
        self._ticked: Optional[float] = None

    def start(self, now: float) -> None:
        self._started = now

    def tick(self, now: float) -> None:
        """Look at every deadline."""
        self._forgive_own_sleep(now)
        if self._course.verdict is None:
            self._look_at_queue(now)
            self._look_at_starts(now)
            self._look_at_silence(now)
            self._look_at_lifetime(now)
        self._course.out += self._course.ending.tick(now)

    def _forgive_own_sleep(self, now: float) -> None:
        """Silence that was our own is nobody's fault: heartbeats may be waiting to be read."""
        asleep = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if asleep > _ASLEEP:
            for task in self._course.tasks:
                if task.heard_at is not None:
                    task.heard_at = min(now, task.heard_at + asleep)

    def _look_at_queue(self, now: float) -> None:
        course = self._course
        if course.phase is not JobState.WAITING:
            return
        missing = course.gang.timed_out(now)
        if missing:
            course.fail(Failure(FailureKind.QUEUE_TIMEOUT, missing), now)
            return
        course.out += course.gang.tick(now)
        held = {task.container.id for task in course.tasks if task.container}
        for container_id in set(course.by_container) - held:  # given back
            del course.by_container[container_id]

    def _look_at_starts(self, now: float) -> None:
        course = self._course
        late = [task for task in course.tasks if task.deadline is not None and now >= task.deadline and not task.ended]
        for task in late:
            task.deadline = None
            if task.role is Role.SIDECAR:
                course.task_failed(task, self._not_there([task]), now)
        needed = [task for task in late if task.role is not Role.SIDECAR]
        if needed:
            failure = self._not_there(needed)
            for task in needed:
                task.state = TaskState.FAILED
            course.fail(failure, now)

    def _not_there(self, late: list[Task]) -> Failure:
        """Why the job cannot start: containers that were not granted, or executors that did not register."""
        requested = [task for task in late if task.state is TaskState.REQUESTED]
        if requested:
            message = (
                f"{words.some(task.name for task in requested)} lost its container before the job had started, and no "
                f"new one was granted within {self._job.timeouts.allocation:g} s (timeouts.allocation)"
            )
            return Failure(FailureKind.CONTAINER_LOST, message, requested[0].name)
        names = words.some(f"{task.name} on {task.node}" for task in late)
        message = (
            f"not registered within {self._job.timeouts.registration:g} s (timeouts.registration): {names}. The node "
            "may be slow to copy files, or may not reach the application master; the container's log says more"
        )
        return Failure(FailureKind.REGISTRATION_TIMEOUT, message, late[0].name)

    def _look_at_silence(self, now: float) -> None:
        for task in self._course.tasks:
            if task.heard_at is None or task.ended or task.container_ended or task.told_to_stop:
                continue
            silence = now - task.heard_at
            if silence <= LOST_AFTER:
                continue
            failure = failures.of_silence(task, silence)
            if self._course.phase is JobState.STARTING:
                self._course.lost_before_start(task, failure, now)
            else:
                self._course.task_failed(task, failure, now)

    def _look_at_lifetime(self, now: float) -> None:
        limit = self._job.timeouts.lifetime
        if limit is not None and now - self._started >= limit:
            self._course.kill(f"the job's lifetime of {limit:g} s (timeouts.lifetime) is over", now)
