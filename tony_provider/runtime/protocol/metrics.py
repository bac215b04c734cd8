"""The table of task metrics, which executors measure, and the aggregation of their values.

Heartbeats, status, samples, job page, Prometheus, portal and command line read this table. CONTRIBUTING.md has a recipe
for a new metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Optional

import attrs

from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.protocol.status import TaskStatus, TypeUse

MetricValues = Mapping[str, float]
"""Values by the metric's name. A metric without a known value is left out."""


class Unit(str, Enum):
    """Unit of a metric."""

    BYTES = "bytes"
    PERCENT = "percent"
    CORE_PERCENT = "core_percent"  # 100 is one core


class Aggregation(str, Enum):
    """Method by which the values of a period, of one task or of all tasks of a type, become a single value."""

    MOST = "most"
    MEAN = "mean"  # mean value, weighted by time
    DIFFERENCE = "difference"  # value of a counter at the end, minus its value at the beginning


@attrs.frozen
class Family:
    """A metric family of the page for Prometheus."""

    name: str
    help: str  # description for Prometheus, without backslashes and line breaks

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


@attrs.frozen(kw_only=True)
class Metric:
    """A metric of a task. Only metrics with a ``title`` are in samples, on the job page and in the portal."""

    name: str  # field of the message Heartbeat, key of samples, and field of TaskStatus for some metrics
    unit: Unit
    aggregation: Aggregation
    title: str = ""  # title of its columns in tables
    curve: str = ""  # start of a curve's label on the job page; the task's name is appended
    chart: str = ""  # title of a chart in the portal
    zero_is_shown: bool = True  # False if 0 means that no value is known
    in_task_tables: bool = False  # whether `airflow tony status` and the log of the Airflow task show it
    prometheus: Optional[Family] = None  # only for metrics in TaskStatus

    @property
    def is_counter(self) -> bool:
        """Whether the value counts from the executor's start. Users then see its rate per second."""
        return self.aggregation is Aggregation.DIFFERENCE

    @property
    def use_field(self) -> str:
        """The field of TypeUse for its aggregate."""
        return f"{self.aggregation.value}_{self.name}"

    def text(self, value: Optional[float]) -> str:
        """Format a value, or the rate of a counter. Return an empty string if the value is unknown."""
        if value is None or not (value or self.zero_is_shown):
            return ""
        if self.unit is Unit.BYTES:
            return f"{size(value)}/s" if self.is_counter else size(value)
        return f"{value:.0f} %"


MEMORY = Metric(
    name="rss_bytes",
    unit=Unit.BYTES,
    aggregation=Aggregation.MOST,
    title="Memory",
    curve="Memory of",
    chart="Resident memory",
    zero_is_shown=False,  # 0 means that no user process runs
    in_task_tables=True,
    prometheus=Family("tony_task_resident_memory_bytes", "Resident memory of the user process and its children."),
)
CPU = Metric(
    name="cpu_percent",
    unit=Unit.CORE_PERCENT,
    aggregation=Aggregation.MEAN,
    title="CPU",
    curve="CPU of",
    chart="CPU cores in use",
    prometheus=Family("tony_task_cpu_cores", "CPU cores in use by the user process and its children."),
)
NODE_BUSY = Metric(name="node_busy_percent", unit=Unit.PERCENT, aggregation=Aggregation.MEAN)
METRICS = (
    MEMORY,
    CPU,
    Metric(
        name="gpu_percent",
        unit=Unit.PERCENT,
        aggregation=Aggregation.MEAN,
        title="GPU",
        curve="GPU use of",
        chart="GPU use (100 % is one GPU)",
    ),
    Metric(
        name="gpu_bytes",
        unit=Unit.BYTES,
        aggregation=Aggregation.MOST,
        title="GPU mem.",
        curve="GPU memory of",
        chart="GPU memory",
    ),
    Metric(
        name="read_bytes",
        unit=Unit.BYTES,
        aggregation=Aggregation.DIFFERENCE,
        title="Read",
        curve="Disk read rate of",
        chart="Disk read rate",
    ),
    Metric(
        name="written_bytes",
        unit=Unit.BYTES,
        aggregation=Aggregation.DIFFERENCE,
        title="Written",
        curve="Disk write rate of",
        chart="Disk write rate",
    ),
    Metric(
        name="received_bytes",
        unit=Unit.BYTES,
        aggregation=Aggregation.DIFFERENCE,
        title="Received",
        curve="Network receive rate of",
        chart="Network receive rate",
    ),
    Metric(
        name="sent_bytes",
        unit=Unit.BYTES,
        aggregation=Aggregation.DIFFERENCE,
        title="Sent",
        curve="Network send rate of",
        chart="Network send rate",
    ),
    NODE_BUSY,
)
"""All metrics, in the order of their columns."""

SHOWN = tuple(metric for metric in METRICS if metric.title)
IN_STATUS = tuple(metric for metric in METRICS if metric.name in attrs.fields_dict(TaskStatus))
IN_TASK_TABLES = tuple(metric for metric in METRICS if metric.in_task_tables)
IN_TYPE_USE = tuple(metric for metric in METRICS if metric.use_field in attrs.fields_dict(TypeUse))
NO_COUNTS: MetricValues = {metric.name: 0 for metric in METRICS if metric.is_counter}

_AGGREGATED = tuple(metric for metric in METRICS if not metric.is_counter)
_PLACES = {metric.name: place for place, metric in enumerate(_AGGREGATED)}
_STEPS = tuple((_PLACES[metric.name], metric.name, metric.aggregation is Aggregation.MOST) for metric in _AGGREGATED)


@attrs.define
class MetricFold:
    """Aggregates the values of heartbeats. Each heartbeat represents the time since the previous one.

    Lists instead of dictionaries save memory: a master has such an object for each of thousands of tasks.
    """

    before: MetricValues = attrs.field(factory=dict)  # counters at the beginning
    newest: MetricValues = attrs.field(factory=dict)
    _sums: list[Optional[float]] = attrs.field(factory=lambda: [None] * len(_AGGREGATED))  # sums or maxima
    _seconds: list[float] = attrs.field(factory=lambda: [0.0] * len(_AGGREGATED))  # seconds of each sum

    def add(self, values: MetricValues, seconds: float) -> None:
        """Add the values of a heartbeat."""
        for place, name, is_most in _STEPS:
            value = values.get(name)
            if value is None:
                continue
            sum = self._sums[place]
            if is_most:
                self._sums[place] = value if sum is None else max(sum, value)
            else:
                self._sums[place] = (sum or 0.0) + value * seconds
                self._seconds[place] += seconds
        self.newest = values

    def restore(self, metric: Metric, value: Optional[float], seconds: float) -> None:
        """Continue from the aggregate of an earlier time."""
        if value is not None:
            place, is_most = _PLACES[metric.name], metric.aggregation is Aggregation.MOST
            self._sums[place], self._seconds[place] = value if is_most else value * seconds, seconds

    def value(self, metric: Metric) -> Optional[float]:
        """Return the aggregate, or None if it is unknown."""
        if metric.is_counter:
            return counted_between(self.before.get(metric.name), self.newest.get(metric.name))
        sum, seconds = self._sums[_PLACES[metric.name]], self._seconds[_PLACES[metric.name]]
        if sum is None or metric.aggregation is Aggregation.MOST:
            return sum
        return sum / seconds if seconds else None


def counted_between(before: Optional[float], now: Optional[float]) -> Optional[float]:
    """Return the difference of two counts, or None if one is unknown."""
    return None if before is None or now is None else max(0, now - before)


def present_use(values: MetricValues, before: MetricValues, seconds: float) -> MetricValues:
    """Return the values of a heartbeat as users see them. ``before``: values of the heartbeat ``seconds`` ago."""
    found = {}
    for metric in SHOWN:
        value = values.get(metric.name)
        if metric.is_counter:
            counted = counted_between(before.get(metric.name), value)
            value = None if counted is None or seconds <= 0 else counted / seconds
        if value is not None:
            found[metric.name] = value
    return found
