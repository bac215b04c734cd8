"""Use of time and resources by the job.

``TimeLedger`` assigns the job's time to activities, such as allocation and training. ``TypeLedger`` sums up resources
by task type. ``LoneRestarts`` tracks tasks that restart alone.
"""

from __future__ import annotations

from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.gang import ContainerSizes
from tony_provider.runtime.am.session.session_state import Heartbeat, SessionState, Task
from tony_provider.runtime.protocol.metrics import (
    CPU,
    IN_TYPE_USE,
    MEMORY,
    NODE_BUSY,
    MetricFold,
    MetricValues,
)
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TimeUse, TypeUse

ALLOCATION, LOCALISATION, START = "allocation", "localisation", "start"  # fields of TimeUse
TRAINING, RESTARTS, SUSPENDED, END = "training", "restarts", "suspended", "end"
_SILENT = 600.0  # seconds of silence after which the program is assumed never to report
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
    """The first progress report of a generation, kept until the pace shows how much of the time before was training."""

    task: str
    steps: int  # steps that the generation had completed
    seconds: float  # time from the start of the generation's processes to the report
    beginning: str  # START or RESTARTS
    put_down: float  # part of ``seconds`` assigned to ``beginning``; the rest is assigned to training


class TimeLedger:
    """Assigns the job's time to the fields of TimeUse.

    Call ``update`` after each event. Times are on the session's clock, in seconds.

    A generation trains from its first progress report on. Time before that report also counts as training, as long as
    its steps take at the pace until the second report. A program that never reports steps trains from the start of its
    processes. While some tasks restart alone, their share of all tasks' time counts as restarts.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._seconds = dict.fromkeys((ALLOCATION, LOCALISATION, START, TRAINING, RESTARTS, SUSPENDED, END), 0.0)
        self._checkpoints = 0.0
        self._repeated = 0.0
        self._doing = ALLOCATION
        self._since = 0.0
        self._reports = False  # whether any program of the job has reported a step
        self._heard = 0  # newest generation with a report
        self._works = 0  # newest generation that counts as training: it reported a step, or was silent for _SILENT
        self._started = 0  # newest generation with a started process
        self._silent = 0.0  # seconds without a report of generation ``_started``, assigned to its beginning
        self._presumed = 0.0  # seconds without a report of generation ``_started``, assigned to training
        self._beginning = START  # START or RESTARTS: the last activity before training
        self._first: Optional[_FirstReport] = None
        self._step = 0  # highest step of the newest generation
        self._reached = 0  # highest step of former generations
        self._alone = LoneRestarts(state)

    def begin(self, now: float) -> None:
        self._since = now

    def take_over(self, former: JobStatus, now: float) -> None:
        """Continue from the last status of a former application master, and add the time since that status."""
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

    def update(self, now: float) -> None:
        """Assign the time since the last call."""
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
        self._alone.update(self._doing == TRAINING)
        if self._doing != before:
            self._judge_silence(before)
            if before == TRAINING:
                self._weigh(None, over=True)

    def started(self, task: Task, now: float) -> None:
        """Record the start of a user process."""
        if task.process and task.process.generation > self._started:
            self._judge_silence(self._doing)
            self._started, self._silent, self._presumed = task.process.generation, 0.0, 0.0
        if self._alone.is_down(task) and task.progress is None:
            self.update(now)
            self._alone.works(task)

    def reported(self, task: Task, progress: TaskProgress, now: float) -> None:
        """Record a task's progress report."""
        process = task.process
        if process is None or process.started_at is None or process.generation != self._state.generation.number:
            return  # the report may date from before the last failure
        if self._heard < process.generation:
            self.update(now)
            silent = self._silent + self._presumed
            self._first = _FirstReport(task.name, self._done(progress.step), silent, self._beginning, self._silent)
            self._heard = self._works = process.generation
            self._reports, self._silent, self._presumed = True, 0.0, 0.0
            # Reset the step only now, because processes that stop for a restart may still report their last steps.
            self._reached, self._step = max(self._reached, self._step), 0
        self._step = max(self._step, progress.step)
        self.update(now)
        if self._first and self._first.task == task.name:
            self._weigh(progress.steps_per_second)
        self._alone.reported(task, progress.step)

    def copied(self, seconds: float) -> None:
        """Record the time that the copy of a committed checkpoint took."""
        self._checkpoints += seconds

    def figures(self, now: float) -> TimeUse:
        """Return the use of time so far. The caller sets ``queue``, which the session does not know."""
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
        return START if self._started == state.generation.number else LOCALISATION  # executors first unpack archives

    def _listen(self, seconds: float) -> None:
        """Count seconds during which the newest generation ran without a report."""
        if self._doing == TRAINING:
            self._presumed += seconds
        elif self._doing in (START, RESTARTS):
            self._silent += seconds
            if self._silent >= _SILENT:
                self._works = self._state.generation.number

    def _judge_silence(self, spent_as: str) -> None:
        """Count the silent time as training if no program has ever reported a step."""
        if not self._reports and spent_as in (START, RESTARTS):
            self._seconds[spent_as] -= self._silent
            self._seconds[TRAINING] += self._silent
            self._silent, self._presumed = 0.0, self._presumed + self._silent

    def _done(self, step: int) -> int:
        """Return the number of steps of this generation up to ``step``, as far as its first step is known."""
        resume = self._state.generation.resume
        return step - ((resume.step if resume else None) or 0)

    def _weigh(self, pace: Optional[float], *, over: bool = False) -> None:
        """Assign the time before the first report, once the pace shows how much of it was training.

        ``pace`` is in steps per second, or None if unknown. ``over`` means that the pace will not become known, so all
        of that time counts as training.
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


_HOLD = (TaskState.STARTING, TaskState.REGISTERED, TaskState.RUNNING)  # states in which a task holds a container
_MOST_WEIGHT = 60.0  # limit of the seconds that one heartbeat represents
_SUSTAINED = 30.0  # seconds: shorter peaks of processor use appear only in the mean
_CROWDED = 90.0  # percent of a node's processors above which tasks may have to wait for a processor


@attrs.define
class _Mean:
    """A mean of values, weighted by the seconds that each was valid."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float, seconds: float) -> None:
        self.total += value * seconds
        self.seconds += seconds

    @property
    def value(self) -> Optional[float]:
        return round(self.total / self.seconds, 1) if self.seconds else None


@attrs.define
class _Ledger:
    """Sums for one task type."""

    held: float = 0.0  # seconds that containers were held
    used: float = 0.0  # seconds that user processes ran
    fold: MetricFold = attrs.field(factory=MetricFold)
    most_cpu: Optional[float] = None  # highest mean over _SUSTAINED, in percent of a core
    sustained: dict[str, _Mean] = attrs.field(factory=dict)  # processor use in the current interval, by task
    crowded: _Mean = attrs.field(factory=_Mean)  # percentage of time on crowded nodes
    most_rss_task: Optional[str] = None

    def add(self, task: str, values: MetricValues, seconds: float) -> None:
        if values[MEMORY.name] > (self.fold.value(MEMORY) or 0):
            self.most_rss_task = task
        self.fold.add(values, seconds)
        busy = values.get(NODE_BUSY.name)
        if busy is not None:
            self.crowded.add(100.0 if busy >= _CROWDED else 0.0, seconds)
        sustained = self.sustained.setdefault(task, _Mean())
        sustained.add(values.get(CPU.name, 0.0), seconds)
        if sustained.seconds >= _SUSTAINED:
            self.most_cpu = max(self.most_cpu or 0.0, sustained.value or 0.0)
            del self.sustained[task]


class TypeLedger:
    """Sums up the resources that the tasks of each type use. Times are on the session's clock, in seconds."""

    def __init__(self, state: SessionState, sizes: ContainerSizes) -> None:
        self._state = state
        self._sizes = sizes
        self._of = {name: _Ledger() for name in state.job.tasks}
        self._since = 0.0

    def begin(self, now: float) -> None:
        self._since = now

    def take_over(self, former: JobStatus, now: float) -> None:
        """Continue from the last status of a former application master, and add the use since that status."""
        away = max(0.0, now - (former.updated_ms / 1000 - self._state.epoch))
        for use in former.use:
            if use.type in self._of:
                ledger = self._of[use.type] = _Ledger(
                    held=use.container_seconds,
                    used=use.used_seconds,
                    most_cpu=use.most_cpu_percent,
                    most_rss_task=use.most_rss_task,
                )
                if use.crowded_percent is not None:
                    ledger.crowded.add(use.crowded_percent, use.used_seconds)
                for metric in IN_TYPE_USE:
                    ledger.fold.restore(metric, getattr(use, metric.use_field), use.used_seconds)
        for task in former.tasks:
            if task.type in self._of and task.state in _HOLD:
                self._of[task.type].held += away
                self._of[task.type].used += away if task.state is TaskState.RUNNING else 0.0

    def tick(self, now: float) -> None:
        """Add the time since the last tick, for every task."""
        seconds, self._since = max(0.0, now - self._since), now
        for task in self._state.tasks:
            if task.has_container:
                ledger = self._of[task.type]
                ledger.held += seconds
                if task.process and task.process.is_running:
                    ledger.used += seconds

    def heard(self, task: Task, beat: Heartbeat, now: float) -> None:
        """Record a heartbeat. Call this before ``task.heard_at`` is updated."""
        if not task.process or not task.process.is_running or not beat.values.get(MEMORY.name):
            return
        seconds = min(max(0.0, now - task.heard_at), _MOST_WEIGHT) if task.heard_at is not None else 0.0
        self._of[task.type].add(task.name, beat.values, seconds)

    def figures(self) -> list[TypeUse]:
        """Return the use of resources by task type, in the job's order."""
        return [self._use(name, ledger) for name, ledger in self._of.items()]

    def _use(self, name: str, ledger: _Ledger) -> TypeUse:
        spec = self._sizes.of(name)
        values: dict[str, Any] = {metric.use_field: _tenths(ledger.fold.value(metric)) for metric in IN_TYPE_USE}
        return TypeUse(
            **values,
            type=name,
            tasks=sum(1 for task in self._state.of_type[name] if not task.unrequested),
            container_seconds=round(ledger.held, 1),
            memory_bytes=spec.memory << 20,
            vcores=spec.vcores,
            gpus=spec.gpus,
            used_seconds=round(ledger.used, 1),
            most_rss_task=ledger.most_rss_task,
            most_cpu_percent=ledger.most_cpu,
            crowded_percent=ledger.crowded.value,
        )


def _tenths(value: Optional[float]) -> Optional[float]:
    return None if value is None else round(value, 1)


class LoneRestarts:
    """Tracks deciding tasks that restart alone, until they reach their former step again."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._tasks = 1  # number of all deciding tasks
        self._restarts = 0  # number of restarts at the last check
        self._down: dict[str, int] = {}  # step reached before the restart, by task that is down
        self._behind: dict[str, int] = {}  # step reached before the restart, by task that repeats steps

    @property
    def down(self) -> float:
        """The fraction of the tasks that are down, from 0 to 1."""
        return len(self._down) / self._tasks if self._down else 0.0

    @property
    def repeating(self) -> float:
        """The fraction of the tasks that repeat steps, from 0 to 1."""
        return len(self._behind) / self._tasks if self._behind else 0.0

    def update(self, trains: bool) -> None:
        """Find tasks that restart alone. ``trains`` is whether the job is training."""
        if not trains:
            self._down, self._behind = {}, {}
        if self._restarts == self._state.restarts or self._state.phase is JobState.RECOVERING:
            return
        self._restarts = self._state.restarts
        if trains:
            tasks = [task for task in self._state.tasks if task.decisive and not task.left_out]
            self._tasks = max(1, len(tasks))
            for task in tasks:
                if task.name not in self._down and _starts_again(task):
                    reached = task.progress.step if task.progress else 0
                    self._down[task.name] = max(reached, self._behind.pop(task.name, 0))

    def is_down(self, task: Task) -> bool:
        return task.name in self._down

    def works(self, task: Task) -> None:
        """Record that a task that was down works again."""
        if reached := self._down.pop(task.name):
            self._behind[task.name] = reached

    def reported(self, task: Task, step: int) -> None:
        """Record a step that a task has reported."""
        process = task.process
        if process is None or not process.is_running or process.stop_by is not None:
            return  # the report may date from before the restart
        if task.name in self._down:
            self.works(task)
        if step >= self._behind.get(task.name, step + 1):
            del self._behind[task.name]


def _starts_again(task: Task) -> bool:
    process = task.process
    if not task.has_begun or task.done or (process is not None and process.succeeded):
        return False
    return not task.runs or (process is not None and process.stop_by is not None)
