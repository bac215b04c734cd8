"""Content of the job's page: rows, facts from the status, and curves of values over time."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Callable, Optional, Union

import attrs

from tony_provider.runtime.common import quantities
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN, Aggregation, Metric, MetricValues
from tony_provider.runtime.protocol.status import (
    JobState,
    JobStatus,
    ProcessStatus,
    TaskState,
    TaskStatus,
)

MOST_TASKS = 200  # limit of rows, unless the user requests all tasks

Row = Union[TaskStatus, ProcessStatus]
"""A row of the page's table. Rows of further processes stand below the row of their task."""


class Tone(str, Enum):
    """The meaning of a state for users. Style sheets have a colour for each tone; the portal's is in states.js."""

    GOOD = "good"
    ACTIVE = "active"
    BUSY = "busy"
    RESTART = "restart"
    PAUSED = "paused"
    BAD = "bad"
    QUIET = "quiet"


_JOB_TONES = {
    JobState.RUNNING: Tone.ACTIVE,
    JobState.RESTARTING: Tone.RESTART,
    JobState.RECOVERING: Tone.RESTART,
    JobState.SUCCEEDED: Tone.GOOD,
    JobState.FAILED: Tone.BAD,
    JobState.KILLED: Tone.QUIET,
    JobState.SUSPENDED: Tone.PAUSED,
}
_TASK_TONES = {
    TaskState.RUNNING: Tone.ACTIVE,
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


def job_tone(status: JobStatus) -> Tone:
    return _JOB_TONES.get(status.state, Tone.BUSY)


def task_tone(task: TaskStatus) -> Tone:
    return _TASK_TONES.get(task.state, Tone.BUSY)


def done(status: JobStatus) -> Optional[float]:
    """Return the finished fraction of the job, from 0 to 1, or None if it is unknown."""
    known = bool(status.total_steps) or status.state is JobState.SUCCEEDED
    return min(1.0, max(0.0, status.progress)) if known and math.isfinite(status.progress) else None


def done_percent(status: JobStatus) -> str:
    fraction = done(status)
    return "" if fraction is None else quantities.percent(fraction)


def summary_facts(status: JobStatus) -> list[tuple[str, str]]:
    facts = []
    if status.started_ms:
        until = status.finished_ms or status.updated_ms
        word = "Duration" if status.finished_ms else "Elapsed"
        facts.append(("Started", moment(status.started_ms)))
        facts.append((word, quantities.span((until - status.started_ms) / 1000)))
    facts.append(("Application master", f"attempt {status.am_attempt}"))
    if status.generation_after_restart is not None:
        facts.append(("Generation", str(status.generation_after_restart)))
    facts.append(("Restarts", str(status.restarts)))
    facts += [(f"Input {each.name}", each.label) for each in status.inputs]
    return facts


def checkpoint_facts(status: JobStatus) -> list[tuple[str, str]]:
    found = []
    if status.checkpoint is not None:
        found.append(("Newest", status.checkpoint.description))
    if status.checkpoint is not None and status.checkpoint.uri:
        found.append(("Stored at", status.checkpoint.uri))
    found += _export(status)
    if status.generation:
        found.append(("Started from", status.resumed.label if status.resumed else "the beginning"))
    if status.model_dir:
        found.append(("Model", status.model_dir))
    found += [(f"Output {each.name}", each.uri) for each in status.outputs if each.files is not None]
    return found


def _export(status: JobStatus) -> list[tuple[str, str]]:
    found = []
    if status.export is not None:
        found += [("Newest export", status.export.label), ("Exported to", status.export.uri)]
    if status.export_request is not None:
        found.append(("Export requested", moment(status.export_request.since_ms)))
    return found


def _most_telling(tasks: Sequence[TaskStatus]) -> Sequence[TaskStatus]:
    """Return at most MOST_TASKS tasks. If the job has more tasks, tasks in unusual states come first."""
    if len(tasks) <= MOST_TASKS:
        return tasks
    usual = Counter(task.state for task in tasks).most_common(1)[0][0]
    return sorted(tasks, key=lambda task: task.state is usual)[:MOST_TASKS]


def task_counts(tasks: Sequence[TaskStatus]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(task.state.value for task in tasks).most_common())


POINTS = 60  # limit of points in a curve
MOST_CURVE_TASKS = 50  # limit of tasks with curves: the first tasks
MOST_METRICS = 20  # limit of metrics with curves, in the order of their names
SECONDS = 5.0  # interval that each point of a new curve covers


def _mean(pair: Iterable[float]) -> float:
    """Return the mean of two numbers whose sum may overflow."""
    return sum(value / 2 for value in pair)


class CoarseCurve:
    """A value over the time since it was first known: at most POINTS points, which cover equal intervals.

    When the curve is full, ``join`` merges each pair of neighboring points, by default into their mean. So the curve
    becomes coarser, but not larger. Times are seconds of any clock.
    """

    def __init__(self, join: Callable[[Iterable[float]], float] = _mean) -> None:
        self.points = array("d")  # nan if the value was unknown in the interval
        self.seconds = SECONDS  # length of each point's interval
        self.newest = math.nan
        self._join = join
        self._began: Optional[float] = None

    def add(self, now: float, value: float) -> None:
        """Add the current value, if it is finite. If the clock was set back, the value is added to the last point."""
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
    """The curves of a job since this application master started. Their memory does not grow with the job's duration."""

    def __init__(self) -> None:
        self.speed: dict[str, CoarseCurve] = {}  # steps per second, by the task's name
        self.use: dict[tuple[str, str], CoarseCurve] = {}  # by the names of the task and the metric
        self.metrics: dict[str, CoarseCurve] = {}  # values of the leader, by the metric's name

    def add(self, status: JobStatus, use: Optional[Mapping[str, MetricValues]] = None) -> None:
        """Add the values of a status. ``use``: for each task, the metrics that the status lacks."""
        now = status.updated_ms / 1000
        for task in status.tasks[:MOST_CURVE_TASKS]:
            if task.state.is_final:
                continue
            for metric in SHOWN:
                value = metric_value(task, use or {}, metric)
                if value is not None and (value or metric.zero_is_shown):
                    join = max if metric.aggregation is Aggregation.MOST else _mean
                    self.use.setdefault((task.name, metric.name), CoarseCurve(join)).add(now, value)
            if task.progress is not None and task.progress.steps_per_second is not None:
                self.speed.setdefault(task.name, CoarseCurve()).add(now, task.progress.steps_per_second)
        for name, value in sorted(status.metrics.items()):
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics.setdefault(name, CoarseCurve()).add(now, value)


def metric_value(row: Row, use: Mapping[str, MetricValues], metric: Metric) -> Optional[float]:
    """Return the value of a metric from the status, or from ``use`` if the status lacks the metric."""
    value: Optional[float] = (
        getattr(row, metric.name, None) if metric in IN_STATUS else use.get(row.name, {}).get(metric.name)
    )
    return value


@attrs.frozen
class PageContent:
    """Content of the job page. ``tasks`` are the tasks that have a row."""

    status: JobStatus
    places: Sequence[PageLink] = ()
    curves: JobCurves = attrs.field(factory=JobCurves)
    use: Mapping[str, MetricValues] = attrs.field(factory=dict)  # values that the status lacks, by task
    every_task: bool = False  # show all tasks; if False, at most MOST_TASKS
    may_modify: bool = False  # the user may change the job
    resizable: Sequence[str] = ()  # task types that can be resized
    tasks: Sequence[TaskStatus] = attrs.field(init=False)

    @tasks.default
    def _rows(self) -> Sequence[TaskStatus]:
        return self.status.tasks if self.every_task else _most_telling(self.status.tasks)
