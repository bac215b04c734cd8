"""Suspension of a job: all containers are released after a checkpoint, and requested again when the job resumes.

The application and its master continue to run meanwhile. A user or the job's windows (``OpeningTimes``) suspend and
resume the job.
"""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.am.session.context import Part, SessionContext
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.jobspec.opening_hours import Week, read_hours
from tony_provider.runtime.protocol.status import JobState


class Suspension(Part):
    """The part of the session that suspends and resumes the job."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        self.reason: Optional[str] = None  # reason of the suspension or of a pending one; None without one
        self.at_rest = False  # a former application master had released all containers
        self._by_windows = False  # its reason is that no window is open, and not a user's request
        self._closed = False  # no window is open
        self._out_of_hours = False  # a user has resumed the job outside its windows, until the next window closes
        self._checkpoint_wait = context.checkpoints.new_wait()
        self._looking_at = 0  # index of a task that delayed the suspension at the last check

    def take_over(self, reason: Optional[str], *, by_windows: bool, out_of_hours: bool, at_rest: bool) -> None:
        """Restore the state of a former application master, see History."""
        self.reason, self._by_windows, self.at_rest = reason, by_windows, at_rest and reason is not None
        self._closed = self._out_of_hours = out_of_hours

    def ask(self, reason: str) -> None:
        """Suspend the job at a user's request, unless it is suspended or ending.

        An open window does not resume it then.
        """
        if self.reason is None or self._by_windows:
            self._suspend(reason, by_windows=False)

    def resume(self, reason: str, now: float) -> None:
        """Resume the job at a user's request, or cancel a pending suspension.

        This also works while no window is open.
        """
        if self.reason is not None:
            self._resume(reason, now, out_of_hours=self._closed)

    def close(self, reason: str) -> None:
        """Suspend the job because none of its windows is open, unless a user has resumed it."""
        self._closed = True
        if self.reason is None and not self._out_of_hours:
            self._suspend(reason, by_windows=True)

    def open(self, reason: str, now: float) -> None:
        """Resume the job because one of its windows is open, unless a user has suspended it."""
        self._closed = False
        if self._out_of_hours:
            self._out_of_hours = False
            self._state.note("window", reason, data={"out_of_hours": False})
        if self.reason is not None and self._by_windows:
            self._resume(reason, now, out_of_hours=False)

    def _suspend(self, reason: str, *, by_windows: bool) -> None:
        if self._is_ending:
            return
        self.reason, self._by_windows, self._out_of_hours = reason, by_windows, False
        at_rest = self._state.phase is JobState.SUSPENDED
        data = {"suspended": reason, "by_windows": by_windows, "out_of_hours": False, "at_rest": at_rest}
        self._state.note("suspending", reason, data=data)

    def _resume(self, reason: str, now: float, *, out_of_hours: bool) -> None:
        if self._is_ending:
            return
        self.reason = None
        self._checkpoint_wait.end()
        self._out_of_hours = out_of_hours
        self._state.note("resumed", reason, data={"suspended": None, "out_of_hours": out_of_hours})
        if self._state.phase is JobState.SUSPENDED:
            self._come_again(now)
        else:
            self._restarts.let_go(f"the job is not suspended after all: {reason}", now)

    @property
    def waits_for_checkpoint(self) -> bool:
        """Whether all processes still run, so that they can save a checkpoint."""
        return self._checkpoint_wait.is_on and not self._restarts.held

    def check(self, now: float) -> None:
        """Take the next step: request a checkpoint, stop all processes, or release all containers."""
        if self.reason is None or self._state.phase is JobState.SUSPENDED:
            return
        if self._is_ending:  # tasks that may run until the end continue
            self._restarts.let_go("the job is ending", now)
            return
        if not self._restarts.held:
            # No task of a gang that restarts can save a checkpoint.
            restarting = self._state.phase is JobState.RESTARTING
            if not restarting and not self._checkpoint_wait.is_over(self._words, now):
                return
            self._restarts.hold(self._words, now)
        if not self._restarts.undecided and not self._is_held_up():
            self._come_down()
            self._give_back(now)

    def stay(self, now: float) -> None:
        """Stay suspended under a new application master, because no user process is running."""
        if not self.at_rest:  # a user may have requested another number since
            self._come_down()
        self._give_back(now)

    def _come_down(self) -> None:
        if not self._groups.gang_has_succeeded:
            self._sizes.come_down("it is suspended, and begins with what it needs")

    @property
    def _words(self) -> str:
        return f"the job is suspended: {first_line(self.reason or '')}"

    @property
    def _is_ending(self) -> bool:
        return self._state.verdict is not None or self._state.phase is JobState.FINISHING

    def _is_held_up(self) -> bool:
        """Return whether a task may still deliver results, or its success is not on the store yet.

        A checkpoint counts while its task has its container. Called after every message of thousands of executors, so a
        check continues at the last index.
        """
        tasks = self._state.tasks
        for _ in tasks:
            task = tasks[self._looking_at % len(tasks)]
            if task.busy or (task.recorded and task.has_container):
                return True
            self._looking_at = (self._looking_at + 1) % len(tasks)
        return False

    def _give_back(self, now: float) -> None:
        self._checkpoint_wait.end()
        self._restarts.rest()
        self._containers.suspend([task for task in self._state.tasks if self._comes_again(task)], now, self._words)
        self._state.note("suspended", "no container is held or asked for", data={"at_rest": True})

    def _comes_again(self, task: Task) -> bool:
        return not task.over and not task.waits and not self._groups.is_needless(task)

    def _come_again(self, now: float) -> None:
        """Begin again as at the job's start: stage by stage, and from the newest checkpoint."""
        tasks = [task for task in self._state.tasks if self._comes_again(task)]
        self._context.stages.begin_anew(tasks, {task.type for task in tasks})
        if tasks:
            self._containers.ask_for([task for task in tasks if not task.waits], now)
            self._restarts.prepare_start(now)
        else:
            self._state.enter(JobState.RUNNING)  # waiting tasks begin next


class OpeningTimes(Part):
    """The part of the session that checks whether one of the job's windows is open."""

    def __init__(self, context: SessionContext) -> None:
        super().__init__(context)
        """``offsets`` belong to the windows' time zone."""
        self._epoch = self._state.epoch
        self._windows = self._state.job.windows
        self._week = Week(map(read_hours, self._windows.open), context.zone_offsets) if self._windows else None

    def tick(self, now: float) -> None:
        """Suspend or resume the job according to its windows. A job without windows is unaffected."""
        if self._week is None or self._windows is None:
            return
        moment = self._epoch + now
        if self._week.is_open(moment):
            self._suspension.open("one of its windows is open", now)
        else:
            opening = self._week.in_words(self._week.next_opening(moment))
            self._suspension.close(f"none of its windows is open; the next one opens {opening} ({self._windows.zone})")
