"""Suspension of a job: all containers are released after a checkpoint, and requested again when the job resumes.

The application and its master continue to run meanwhile. A user or the job's windows suspend and resume the job.
"""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.session.context import Part, SessionContext
from tony_provider.runtime.am.session.session_state import Hold, HoldSource, Task
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.opening_hours import Week, read_hours
from tony_provider.runtime.protocol.status import JobState


class Suspension(Part):
    """The part of the session that suspends and resumes the job."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        windows = self._state.job.windows
        self._week = Week(map(read_hours, windows.open), context.zone_offsets) if windows else None
        self._checkpoint_wait = context.checkpoints.new_wait()
        self._checked_from = 0  # index of a task that delayed the suspension at the last check

    @property
    def reason(self) -> Optional[str]:
        """The reason of the suspension or of a pending one, or None without one."""
        hold = self._state.sizing.hold
        return hold.reason if hold else None

    @property
    def is_complete(self) -> bool:
        """Whether all containers are released."""
        hold = self._state.sizing.hold
        return hold is not None and hold.released

    @property
    def _is_by_windows(self) -> bool:
        hold = self._state.sizing.hold
        return hold is not None and hold.source is HoldSource.WINDOWS

    # ---- orders of users, and windows ------------------------------------------------------------------------------

    def ask(self, reason: str) -> None:
        """Suspend the job at a user's request, unless it is suspended or ending.

        An open window does not resume it then.
        """
        if self.reason is None or self._is_by_windows:
            self._hold(reason, HoldSource.USER)

    def resume(self, reason: str, now: float) -> None:
        """Resume the job at a user's request, or cancel a pending suspension.

        If no window is open, the job runs until the next window closes.
        """
        if self.reason is not None:
            moment = self._state.epoch + now
            self._resume(reason, now, override_until=self._week.next_opening(moment) if self._week else 0.0)

    def check_windows(self, now: float) -> None:
        """Suspend or resume the job according to its windows. A job without windows is unaffected."""
        week, windows, moment = self._week, self._state.job.windows, self._state.epoch + now
        if week is None or windows is None:
            return
        if week.is_open(moment):
            if self._is_by_windows:
                self._resume("one of its windows is open", now)
        elif self.reason is None and moment >= self._state.sizing.override_until:
            opening = week.in_words(week.next_opening(moment))
            why = f"none of its windows is open; the next one opens {opening} ({windows.zone})"
            self._hold(why, HoldSource.WINDOWS)

    def _hold(self, reason: str, source: HoldSource) -> None:
        if not self._state.is_ending:
            self._state.sizing.hold = Hold(reason, source, released=self.is_complete)
            self._state.note_sizing("suspending", reason)

    def _resume(self, reason: str, now: float, *, override_until: float = 0.0) -> None:
        if self._state.is_ending:
            return
        self._state.sizing.hold, self._state.sizing.override_until = None, override_until
        self._checkpoint_wait.end()
        self._state.note_sizing("resumed", reason)
        if self._state.phase is JobState.SUSPENDED:
            self._start_again(now)
        else:
            self._restarts.restart_all(f"the job is not suspended after all: {reason}", now)

    # ---- the suspension --------------------------------------------------------------------------------------------

    @property
    def waits_for_checkpoint(self) -> bool:
        """Whether all processes still run, so that they can save a checkpoint."""
        return self._checkpoint_wait.is_on and not self._restarts.held

    def check(self, now: float) -> None:
        """Take the next step: request a checkpoint, stop all processes, or release all containers."""
        if self.reason is None or self._state.phase is JobState.SUSPENDED:
            return
        if self._state.is_ending:  # tasks that may run until the end continue
            self._restarts.restart_all("the job is ending", now)
            return
        if not self._restarts.held:
            # No task of a gang that restarts can save a checkpoint.
            restarting = self._state.phase is JobState.RESTARTING
            if not restarting and not self._checkpoint_wait.is_over(self._message, now):
                return
            self._restarts.stop_all(self._message, now)
        if not self._restarts.undecided and not self._is_held_up():
            self._reset_sizes()
            self._release_all(now)

    def stay_suspended(self, now: float) -> None:
        """Stay suspended under a new application master, because no user process is running."""
        if not self.is_complete:  # a user may have requested another number since
            self._reset_sizes()
        self._release_all(now)

    def _reset_sizes(self) -> None:
        if not self._groups.gang_has_succeeded:
            self._sizes.reset_to_needed("it is suspended, and begins with what it needs")

    @property
    def _message(self) -> str:
        return f"the job is suspended: {first_line(self.reason or '')}"

    def _is_held_up(self) -> bool:
        """Return whether a task may still deliver results, or its success is not on the store yet.

        A checkpoint counts while its task has its container. Called after every message of thousands of executors, so a
        check continues at the last index.
        """
        tasks = self._state.tasks
        for _ in tasks:
            task = tasks[self._checked_from % len(tasks)]
            if task.busy or (task.recorded and task.has_container):
                return True
            self._checked_from = (self._checked_from + 1) % len(tasks)
        return False

    def _release_all(self, now: float) -> None:
        self._checkpoint_wait.end()
        self._restarts.forget_starts()
        self._containers.suspend([task for task in self._state.tasks if self._starts_again(task)], now, self._message)
        if hold := self._state.sizing.hold:
            self._state.sizing.hold = attrs.evolve(hold, released=True)
        self._state.note_sizing("suspended", "no container is held or asked for")

    def _starts_again(self, task: Task) -> bool:
        return not task.done and not task.waits_for_types and not self._groups.is_needless(task)

    def _start_again(self, now: float) -> None:
        """Begin again as at the job's start: stage by stage, and from the newest checkpoint."""
        tasks = [task for task in self._state.tasks if self._starts_again(task)]
        self._context.stages.reset(tasks, {task.type for task in tasks})
        if tasks:
            self._containers.ask_for([task for task in tasks if not task.waits_for_types], now)
            self._restarts.prepare_start(now)
        else:
            self._state.enter(JobState.RUNNING)  # waiting tasks begin next
