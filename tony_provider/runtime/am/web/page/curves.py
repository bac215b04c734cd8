"""How numbers of a job went so far, in few points: what the sparklines of its page are drawn of."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Callable, Optional

from tony_provider.runtime.am.history.container_use import ContainerUse
from tony_provider.runtime.am.web.page.measures import MEASURES
from tony_provider.runtime.protocol.status import JobStatus

POINTS = 60  # of a curve, at most
MOST_TASKS = 50  # that have curves, some each: the first ones
MOST_METRICS = 20  # likewise, in the order of their names
SECONDS = 5.0  # that a point is of at first


def _mean(pair: Iterable[float]) -> float:
    """Of two, whose sum may be more than a number can be."""
    return sum(value / 2 for value in pair)


class CoarseCurve:
    """A number over the whole time since it was first known, in at most POINTS points of the same length.

    When there are more, each two become one, of their mean or by ``join``: the curve becomes coarser, and not longer.
    Times are seconds of any clock.
    """

    def __init__(self, join: Callable[[Iterable[float]], float] = _mean) -> None:
        self.points = array("d")  # nan: nothing was known in that time
        self.seconds = SECONDS  # of each point
        self.newest = math.nan
        self._join = join
        self._began: Optional[float] = None

    def add(self, now: float, value: float) -> None:
        """Add what is known now. What is no number is nothing; a clock that was set back is not followed."""
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
        """The points that are numbers."""
        return [point for point in self.points if not math.isnan(point)]

    @property
    def span(self) -> float:
        """The seconds that it is of."""
        return self.seconds * len(self.points)

    def _coarsen(self) -> None:
        points = array("d")
        for at in range(0, len(self.points), 2):
            pair = [point for point in self.points[at : at + 2] if not math.isnan(point)]
            points.append(self._join(pair) if len(pair) == 2 else pair[0] if pair else math.nan)
        self.points, self.seconds = points, 2 * self.seconds


class JobCurves:
    """The curves of one job, since this application master began: bounded, however long it runs."""

    def __init__(self) -> None:
        self.speed: dict[str, CoarseCurve] = {}  # steps per second, by the task's name
        self.memory: dict[str, CoarseCurve] = {}  # bytes
        self.cpu: dict[str, CoarseCurve] = {}  # percent
        self.use: dict[tuple[str, str], CoarseCurve] = {}  # by the task's name, and the measure's
        self.metrics: dict[str, CoarseCurve] = {}  # of the leader, by the metric's name

    def add(self, status: JobStatus, use: Optional[Mapping[str, ContainerUse]] = None) -> None:
        """Add what a status says, and what the tasks use beside it."""
        now = status.updated_ms / 1000
        for task in status.tasks[:MOST_TASKS]:
            if task.state.is_final:
                continue
            if task.rss_bytes:
                self.memory.setdefault(task.name, CoarseCurve(max)).add(now, task.rss_bytes)
            if task.cpu_percent is not None:
                self.cpu.setdefault(task.name, CoarseCurve()).add(now, task.cpu_percent)
            self._add_use(task.name, (use or {}).get(task.name), now)
            if task.progress is not None and task.progress.steps_per_second is not None:
                self.speed.setdefault(task.name, CoarseCurve()).add(now, task.progress.steps_per_second)
        for name, value in sorted(status.metrics.items()):
            if name in self.metrics or len(self.metrics) < MOST_METRICS:
                self.metrics.setdefault(name, CoarseCurve()).add(now, value)

    def _add_use(self, task: str, use: Optional[ContainerUse], now: float) -> None:
        for measure in MEASURES if use else ():
            value = getattr(use, measure.field)
            if value is not None:
                self.use.setdefault((task, measure.title), CoarseCurve()).add(now, value)
