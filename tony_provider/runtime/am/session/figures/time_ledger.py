"""Where the job's time went: each moment is put down to what the job was doing."""

from __future__ import annotations

from tony_provider.runtime.am.session.figures.lone_restarts import LoneRestarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.job_figures import TimeUse
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress

ALLOCATION, LOCALISATION, START = "allocation", "localisation", "start"  # fields of TimeUse
TRAINING, RESTARTS, END = "training", "restarts", "end"
_SILENT = 600.0  # seconds without a report after which a program counts as one that makes none
_BY_STATE = {
    JobState.WAITING: ALLOCATION,
    JobState.STARTING: LOCALISATION,
    JobState.RESTARTING: RESTARTS,
    JobState.RUNNING: TRAINING,
    JobState.RECOVERING: TRAINING,
}


class TimeLedger:
    """Puts the job's time down to the fields of TimeUse.

    ``look`` at it after whatever has happened; times are the session's, in seconds. A program works from its first
    report in a generation on; one that never makes any, from the start of its processes on. While tasks start again
    alone, and the others go on, their part of the time is that of restarts.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._seconds = dict.fromkeys((ALLOCATION, LOCALISATION, START, TRAINING, RESTARTS, END), 0.0)
        self._checkpoints = 0.0
        self._repeated = 0.0
        self._doing = ALLOCATION
        self._since = 0.0
        self._reports = False  # its programs have ever reported anything
        self._works = 0  # the newest generation that has reported something
        self._started = 0  # the newest generation of which a process has started
        self._silent = 0.0  # seconds since then, as long as it has not reported anything
        self._step = 0  # the highest of the newest generation
        self._reached = 0  # the highest of former generations
        self._alone = LoneRestarts(state)

    def begin(self, now: float) -> None:
        self._since = now

    def take_over(self, former: JobStatus, now: float) -> None:
        """Go on from the status that a former application master has left, also with the time since."""
        times = former.times or TimeUse()
        for name in self._seconds:
            self._seconds[name] = getattr(times, name)
        self._checkpoints, self._repeated = times.checkpoints, times.repeated
        self._step = max((task.progress.step for task in former.tasks if task.progress), default=0)
        self._reports = any(task.progress for task in former.tasks)
        self._doing = _BY_STATE.get(former.state, END)
        self._started = former.generation
        if self._doing == TRAINING and (self._reports or times.training):
            self._works = former.generation
        elif self._doing == TRAINING:
            self._doing, self._silent = START, times.start
        self._since = min(now, former.updated_ms / 1000 - self._state.epoch)

    def look(self, now: float) -> None:
        """Put down the time since the last look."""
        seconds = max(0.0, now - self._since)
        self._since = now
        self._put(self._seconds, seconds)
        if self._doing == TRAINING:
            self._repeated += seconds * (1.0 if self._step < self._reached else self._alone.repeating)
        if self._doing in (START, RESTARTS) and self._started == self._state.generation.number > self._works:
            self._silent += seconds
            if self._silent >= _SILENT:
                self._works = self._state.generation.number
        before, self._doing = self._doing, self._now_doing()
        self._alone.look(self._doing == TRAINING)
        if self._doing != before:
            self._judge_silence(before)

    def started(self, task: Task, now: float) -> None:
        """A user process has started."""
        if task.process:
            self._started = max(self._started, task.process.generation)
        if self._alone.is_down(task) and task.progress is None:
            self.look(now)
            self._alone.works(task)

    def reported(self, task: Task, progress: TaskProgress, now: float) -> None:
        """A task has reported how far it is."""
        process = task.process
        if process is None or process.started_at is None or process.generation != self._state.generation.number:
            return  # it may be what it reported before the last failure
        if self._works < process.generation:
            self.look(now)
            self._works, self._reports, self._silent = process.generation, True, 0.0
            # Not sooner: those that are stopped for a restart may still tell what they had done.
            self._reached, self._step = max(self._reached, self._step), 0
        self._step = max(self._step, progress.step)
        self.look(now)
        self._alone.reported(task, progress.step)

    def copied(self, seconds: float) -> None:
        """A checkpoint was copied to the store, and committed; that took so long."""
        self._checkpoints += seconds

    def figures(self, now: float) -> TimeUse:
        """Where the time went until now. The queue's part is the application master's to know."""
        seconds = dict(self._seconds)
        self._put(seconds, max(0.0, now - self._since))
        return TimeUse(
            **{name: round(value, 1) for name, value in seconds.items()},
            checkpoints=round(self._checkpoints, 1),
            repeated=round(self._repeated, 1),
        )

    def _put(self, where: dict[str, float], seconds: float) -> None:
        down = self._alone.down if self._doing == TRAINING else 0.0
        where[self._doing] += seconds * (1.0 - down)
        where[RESTARTS] += seconds * down

    def _now_doing(self) -> str:
        state, was_down = self._state, self._doing == RESTARTS
        if state.verdict or state.finished or state.phase is JobState.FINISHING:
            return END
        if state.phase is JobState.RECOVERING:
            return self._doing
        if state.phase is not JobState.RUNNING:
            return RESTARTS if was_down else _BY_STATE[state.phase]
        if self._works == state.generation.number:
            return TRAINING
        return RESTARTS if was_down else START

    def _judge_silence(self, spent_as: str) -> None:
        """A program that has never reported anything was at work all the time."""
        if not self._reports:
            self._seconds[spent_as] -= self._silent
            self._seconds[TRAINING] += self._silent
        self._silent = 0.0
