"""View of the job's page: status values as text, and curves of their course."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Callable, Optional
from urllib.parse import quote

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.common import quantities
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.contract import path_of_task
from tony_provider.runtime.protocol import timing
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN, Aggregation, Metric, MetricValues
from tony_provider.runtime.protocol.status import (
    Failure,
    JobState,
    JobStatus,
    ProcessStatus,
    TaskProgress,
    TaskState,
    TaskStatus,
)

MOST_TASKS = 200  # rows, unless the user requests all tasks
_MOST_FORMER = 5  # limit of links to former containers' logs in a row


class Tone(str, Enum):
    """The meaning of a state for users. The style sheet has a colour for each."""

    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"
    QUIET = "quiet"


_JOB_TONES = {
    JobState.RUNNING: Tone.GOOD,
    JobState.SUCCEEDED: Tone.GOOD,
    JobState.FAILED: Tone.BAD,
    JobState.KILLED: Tone.QUIET,
    JobState.SUSPENDED: Tone.QUIET,
}
_TASK_TONES = {
    TaskState.RUNNING: Tone.GOOD,
    TaskState.SUCCEEDED: Tone.GOOD,
    TaskState.FAILED: Tone.BAD,
    TaskState.LOST: Tone.BAD,
    TaskState.STOPPED: Tone.QUIET,
}


@attrs.frozen
class PageLink:
    """A link of the page. ``path`` is relative to the page."""

    title: str
    path: str


@attrs.frozen
class Progress:
    """The progress of the job as text."""

    step: str  # such as "120 of 900"
    fraction: Optional[float]  # 0 to 1; None if unknown
    percent: str
    speed: str
    left: str  # estimated remaining time


@attrs.frozen
class ProcessView:
    """A further process of a task, as a row of the page's table below the task."""

    name: str
    step: str
    speed: str
    use: Mapping[str, str]  # text by metric


@attrs.frozen
class TaskView:
    """A task as a row of the page's table."""

    name: str
    state: str
    tone: Tone
    activity: str
    node: str
    container: int  # number of its newest container
    container_id: str
    starts: int
    heartbeat: str  # time since the last heartbeat
    late: bool  # this time exceeds the limit for executors
    step: str
    speed: str
    exit: str
    log: str  # path
    speed_curve: Optional[CoarseCurve]
    use: Mapping[str, tuple[str, Optional[CoarseCurve]]]  # text and curve by metric, for known values
    former_logs: tuple[tuple[int, str], ...]  # number of the container and path, newest first
    further: tuple[ProcessView, ...]


@attrs.frozen
class JobView:
    """The job as its page shows it."""

    application_id: str
    name: str
    state: str
    tone: Tone
    message: str
    final: bool  # the job's state is final
    course: tuple[tuple[str, str], ...]  # times and counts: since when it runs, restarts, and others
    progress: Progress
    metrics: tuple[tuple[str, str, Optional[CoarseCurve]], ...]
    checkpoint: tuple[tuple[str, str], ...]
    failure: Optional[Failure]
    warnings: tuple[str, ...]
    troubles: tuple[str, ...]
    tasks: tuple[TaskView, ...]
    counts: str  # such as "3 RUNNING, 1 LOST"
    hidden: int  # number of tasks that are not in ``tasks``
    places: tuple[PageLink, ...]
    updated: str

    @classmethod
    def of(
        cls,
        status: JobStatus,
        places: Sequence[PageLink] = (),
        curves: Optional[JobCurves] = None,
        use: Optional[Mapping[str, MetricValues]] = None,
        *,
        every_task: bool = False,
    ) -> JobView:
        """Return the view of a job. ``use`` has values by task name that the status lacks."""
        curves, use = curves or JobCurves(), use or {}
        tasks = status.tasks if every_task else _most_telling(status.tasks)
        silence = timing.lost_after(timing.heartbeat_interval(len(status.tasks)))
        return cls(
            application_id=status.application_id,
            name=status.name,
            state=status.state.value,
            tone=_JOB_TONES.get(status.state, Tone.BUSY),
            message=status.message,
            final=status.state.is_final,
            course=tuple(_course(status)),
            progress=_progress(status),
            metrics=tuple(
                (name, quantities.number(value), curves.metrics.get(name))
                for name, value in sorted(status.metrics.items())
            ),
            checkpoint=tuple(_checkpoint(status)),
            failure=status.failure,
            warnings=tuple(status.warnings),
            troubles=tuple(status.troubles),
            tasks=tuple(_task(task, use.get(task.name, {}), status.updated_ms, silence, curves) for task in tasks),
            counts=_counts(status.tasks),
            hidden=len(status.tasks) - len(tasks),
            places=tuple(places),
            updated=moment(status.updated_ms),
        )


def _course(status: JobStatus) -> list[tuple[str, str]]:
    facts = []
    if status.started_ms:
        until = status.finished_ms or status.updated_ms
        word = "Took" if status.finished_ms else "For"
        facts.append(("Since", moment(status.started_ms)))
        facts.append((word, quantities.span((until - status.started_ms) / 1000)))
    facts.append(("Master", f"number {status.am_attempt}"))
    if status.generation_after_restart is not None:
        facts.append(("Generation", str(status.generation_after_restart)))
    facts.append(("Restarts", str(status.restarts)))
    facts += [(f"Input {each.name}", each.label) for each in status.inputs]
    return facts


def _checkpoint(status: JobStatus) -> list[tuple[str, str]]:
    found = []
    if status.checkpoint is not None:
        found.append(("Newest", status.checkpoint.description))
    if status.checkpoint is not None and status.checkpoint.uri:
        found.append(("Kept at", status.checkpoint.uri))
    found += _export(status)
    if status.generation:
        found.append(("Trains from", status.resumed.label if status.resumed else "the beginning"))
    if status.model_dir:
        found.append(("Model", status.model_dir))
    found += [(f"Output {each.name}", each.uri) for each in status.outputs if each.files is not None]
    return found


def _export(status: JobStatus) -> list[tuple[str, str]]:
    found = []
    if status.export is not None:
        found += [("Newest export", status.export.label), ("Exported to", status.export.uri)]
    if status.export_request is not None:
        found.append(("Export asked for", moment(status.export_request.since_ms)))
    return found


def _progress(status: JobStatus) -> Progress:
    known = bool(status.total_steps) or status.state is JobState.SUCCEEDED
    fraction = min(1.0, max(0.0, status.progress)) if known and math.isfinite(status.progress) else None
    rate = status.steps_per_second
    return Progress(
        step="" if status.step is None else quantities.steps(status.step, status.total_steps),
        fraction=fraction,
        percent="" if fraction is None else quantities.percent(fraction),
        speed="" if rate is None else quantities.speed(rate),
        left=quantities.left(status.step, status.total_steps, rate) if status.state is JobState.RUNNING else "",
    )


def _most_telling(tasks: Sequence[TaskStatus]) -> Sequence[TaskStatus]:
    """Return all tasks of a small gang. A large gang is cut, with tasks in unusual states first."""
    if len(tasks) <= MOST_TASKS:
        return tasks
    usual = Counter(task.state for task in tasks).most_common(1)[0][0]
    return sorted(tasks, key=lambda task: task.state is usual)[:MOST_TASKS]


def _counts(tasks: Sequence[TaskStatus]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(task.state.value for task in tasks).most_common())


def _task(task: TaskStatus, use: MetricValues, now_ms: int, silence: float, curves: JobCurves) -> TaskView:
    progress = task.progress or TaskProgress()
    silent = None if task.heartbeat_ms is None else max(0.0, (now_ms - task.heartbeat_ms) / 1000)
    log = "logs/" + quote(path_of_task(task.name), safe="")
    former = range(task.attempt - 1, max(0, task.attempt - 1 - _MOST_FORMER), -1)
    rate = progress.steps_per_second
    return TaskView(
        name=task.name,
        state=task.state.value,
        tone=_TASK_TONES.get(task.state, Tone.BUSY),
        activity="" if task.activity == task.state.value.lower() else task.activity,
        node=task.node or "",
        container=task.attempt,
        container_id=task.container_id or "",
        starts=task.start,
        heartbeat="" if silent is None or task.state.is_final else f"{quantities.span(silent)} ago",
        late=silent is not None and silent > silence and not task.state.is_final,
        step=quantities.steps(progress.step, progress.total_steps) if task.progress else "",
        speed="" if rate is None else quantities.number(rate),
        exit=_exit(task),
        log=log,
        speed_curve=curves.speed.get(task.name),
        use={
            metric.name: (metric.text(value), curves.use.get((task.name, metric.name)))
            for metric in SHOWN
            if (value := _value(task, use, metric)) is not None
        },
        former_logs=tuple((number, f"{log}?attempt={number}") for number in former),
        further=tuple(map(_process, task.further)),
    )


def _process(process: ProcessStatus) -> ProcessView:
    progress = process.progress or TaskProgress()
    rate = progress.steps_per_second
    return ProcessView(
        name=process.name,
        step=quantities.steps(progress.step, progress.total_steps) if process.progress else "",
        speed="" if rate is None else quantities.number(rate),
        use={metric.name: metric.text(getattr(process, metric.name)) for metric in IN_STATUS},
    )


def _value(task: TaskStatus, use: MetricValues, metric: Metric) -> Optional[float]:
    value: Optional[float] = getattr(task, metric.name) if metric in IN_STATUS else use.get(metric.name)
    return value


def _exit(task: TaskStatus) -> str:
    if task.signal:
        return descriptions.signal_name(task.signal)
    return "" if task.exit_code is None else f"code {task.exit_code}"


POINTS = 60  # limit of a curve
MOST_CURVE_TASKS = 50  # limit of tasks with curves: the first tasks
MOST_METRICS = 20  # limit of metrics with curves, in the order of their names
SECONDS = 5.0  # initial length of a point's interval


def _mean(pair: Iterable[float]) -> float:
    """Return the mean of two numbers whose sum may overflow."""
    return sum(value / 2 for value in pair)


class CoarseCurve:
    """A number over the whole time since it was first known, in at most POINTS points of equal length.

    When it is full, each pair of points becomes one, by mean or by ``join``, so the curve becomes coarser and not
    longer. Times are seconds of any clock.
    """

    def __init__(self, join: Callable[[Iterable[float]], float] = _mean) -> None:
        self.points = array("d")  # nan if the value was unknown in the interval
        self.seconds = SECONDS  # length of each point's interval
        self.newest = math.nan
        self._join = join
        self._began: Optional[float] = None

    def add(self, now: float, value: float) -> None:
        """Add the present value. Values that are not finite are ignored, and so is a clock that was set back."""
        if not math.isfinite(value):
            return
        if self._began is None:
            self._began = now
        place = max(len(self.points) - 1, 0, int((now - self._began) / self.seconds))
        while place >= POINTS:
            self._coarsen()
            place = max(len(self.points) - 1, int((now - self._began) / self.seconds))
        self.points.extend([math.nan] * (place + 1 - len(self.points)))
        before = self.points[place]
        self.points[place] = value if math.isnan(before) else self._join((before, value))
        self.newest = value

    @property
    def known(self) -> list[float]:
        """The points with known values."""
        return [point for point in self.points if not math.isnan(point)]

    @property
    def span(self) -> float:
        """The length of the whole curve in seconds."""
        return self.seconds * len(self.points)

    def _coarsen(self) -> None:
        points = array("d")
        for at in range(0, len(self.points), 2):
            pair = [point for point in self.points[at : at + 2] if not math.isnan(point)]
            points.append(self._join(pair) if len(pair) == 2 else pair[0] if pair else math.nan)
        self.points, self.seconds = points, 2 * self.seconds


class JobCurves:
    """The curves of one job since this application master began. Their size is limited, however long the job runs."""

    def __init__(self) -> None:
        self.speed: dict[str, CoarseCurve] = {}  # steps per second, by the task's name
        self.use: dict[tuple[str, str], CoarseCurve] = {}  # by the names of the task and the metric
        self.metrics: dict[str, CoarseCurve] = {}  # values of the leader, by the metric's name

    def add(self, status: JobStatus, use: Optional[Mapping[str, MetricValues]] = None) -> None:
        """Add the values of a status, and of the tasks' use that the status lacks."""
        now = status.updated_ms / 1000
        for task in status.tasks[:MOST_CURVE_TASKS]:
            if task.state.is_final:
                continue
            for metric in SHOWN:
                value = _value(task, (use or {}).get(task.name, {}), metric)
                if value is not None and (value or metric.zero_is_shown):
                    join = max if metric.aggregation is Aggregation.MOST else _mean
                    self.use.setdefault((task.name, metric.name), CoarseCurve(join)).add(now, value)
            if task.progress is not None and task.progress.steps_per_second is not None:
                self.speed.setdefault(task.name, CoarseCurve()).add(now, task.progress.steps_per_second)
        for name, value in sorted(status.metrics.items()):
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics.setdefault(name, CoarseCurve()).add(now, value)
