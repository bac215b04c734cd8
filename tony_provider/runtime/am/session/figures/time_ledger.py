"""Where the job's time went: each moment is put down to what the job was doing."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.session.figures.lone_restarts import LoneRestarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.job_figures import TimeUse
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress

ALLOCATION, LOCALISATION, START = "allocation", "localisation", "start"  # fields of TimeUse
TRAINING, RESTARTS, SUSPENDED, END = "training", "restarts", "suspended", "end"
_SILENT = 600.0  # seconds without a report after which a program counts as one that makes none
_BY_STATE = {
    JobState.WAITING: ALLOCATION,
    JobState.STARTING: LOCALISATION,
    JobState.RESTARTING: RESTARTS,
    JobState.RUNNING: TRAINING,
    JobState.RECOVERING: TRAINING,
    JobState.SUSPENDED: SUSPENDED,
}


@attrs.frozen
class _FirstReport:
    """The first report of a generation, as long as it is not known how much of the time before it was work."""

    task: str
    steps: int  # that were done by then
    seconds: float  # since the generation's processes had started
    beginning: str  # START or RESTARTS
    put_down: float  # of these seconds, to that; the others are put down to training


class TimeLedger:
    """Puts the job's time down to the fields of TimeUse.

    ``look`` at it after whatever has happened; times are the session's, in seconds. A program works from its first
    report in a generation on, and before it for as long as the steps that it reports then have taken, by the pace of
    its next report; one that never reports anything, from the start of its processes on. While tasks start again
    alone, and the others go on, their part of the time is that of restarts.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._seconds = dict.fromkeys((ALLOCATION, LOCALISATION, START, TRAINING, RESTARTS, SUSPENDED, END), 0.0)
        self._checkpoints = 0.0
        self._repeated = 0.0
        self._doing = ALLOCATION
        self._since = 0.0
        self._reports = False  # its programs have ever reported anything
        self._heard = 0  # the newest generation that has reported something
        self._works = 0  # the newest one that is at work, having reported something or been silent for long
        self._started = 0  # the newest generation of which a process has started
        self._silent = 0.0  # seconds since then, as long as it has not reported anything, put down to its beginning
        self._presumed = 0.0  # likewise, put down to training
        self._beginning = START  # or RESTARTS: what it was before it was at work
        self._first: Optional[_FirstReport] = None
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
            self._works = self._heard = former.generation
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
        if self._doing in (START, RESTARTS):
            self._beginning = self._doing
        if self._started == self._state.generation.number > self._heard:
            self._listen(seconds)
        before, self._doing = self._doing, self._now_doing()
        self._alone.look(self._doing == TRAINING)
        if self._doing != before:
            self._judge_silence(before)
            if before == TRAINING:
                self._weigh(None, over=True)

    def started(self, task: Task, now: float) -> None:
        """A user process has started."""
        if task.process and task.process.generation > self._started:
            self._judge_silence(self._doing)
            self._started, self._silent, self._presumed = task.process.generation, 0.0, 0.0
        if self._alone.is_down(task) and task.progress is None:
            self.look(now)
            self._alone.works(task)

    def reported(self, task: Task, progress: TaskProgress, now: float) -> None:
        """A task has reported how far it is."""
        process = task.process
        if process is None or process.started_at is None or process.generation != self._state.generation.number:
            return  # it may be what it reported before the last failure
        if self._heard < process.generation:
            self.look(now)
            silent = self._silent + self._presumed
            self._first = _FirstReport(task.name, self._done(progress.step), silent, self._beginning, self._silent)
            self._heard = self._works = process.generation
            self._reports, self._silent, self._presumed = True, 0.0, 0.0
            # Not sooner: those that are stopped for a restart may still tell what they had done.
            self._reached, self._step = max(self._reached, self._step), 0
        self._step = max(self._step, progress.step)
        self.look(now)
        if self._first and self._first.task == task.name:
            self._weigh(progress.steps_per_second)
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
        if state.phase is JobState.SUSPENDED:
            return SUSPENDED
        if state.phase is not JobState.RUNNING:
            return RESTARTS if was_down else _BY_STATE[state.phase]
        if self._works == state.generation.number:
            return TRAINING
        if was_down:
            return RESTARTS
        return START if self._started == state.generation.number else LOCALISATION  # executors unpack archives

    def _listen(self, seconds: float) -> None:
        """The newest generation runs, and has not reported anything in so many seconds."""
        if self._doing == TRAINING:
            self._presumed += seconds
        elif self._doing in (START, RESTARTS):
            self._silent += seconds
            if self._silent >= _SILENT:
                self._works = self._state.generation.number

    def _judge_silence(self, spent_as: str) -> None:
        """A program that has never reported anything was at work all the time."""
        if not self._reports and spent_as in (START, RESTARTS):
            self._seconds[spent_as] -= self._silent
            self._seconds[TRAINING] += self._silent
            self._silent, self._presumed = 0.0, self._presumed + self._silent

    def _done(self, step: int) -> int:
        """How many steps of this generation that makes, as far as it is known where it began."""
        resume = self._state.generation.resume
        return step - ((resume.step if resume else None) or 0)

    def _weigh(self, pace: Optional[float], *, over: bool = False) -> None:
        """Put down the time before the first report, once it is known how much of it was work.

        ``pace``: steps per second, if known. ``over``: it will not be known any more. Then it is not known, either,
        that the beginning was slow.
        """
        first = self._first
        if first is None:
            return
        if first.steps <= 1:
            worked = 0.0
        elif pace is not None and pace > 0:
            worked = min(first.seconds, first.steps / pace)
        elif over:
            worked = first.seconds
        else:
            return
        more = first.seconds - worked - first.put_down
        self._seconds[first.beginning] += more
        self._seconds[TRAINING] -= more
        if first.beginning == RESTARTS:
            self._repeated = max(0.0, self._repeated - more)
        self._first = None
