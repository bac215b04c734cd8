"""The curves of a summary: the leader's metrics over its steps, with as few points as still show what happened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from tony_provider.cluster.history.job_summary import CURVE_POINTS, CURVES, Curve
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.history.task_sample import TaskSample

LONGEST_NAME = 100  # characters of a metric: one with a longer name is left out
_DIGITS = 7  # of a value


@attrs.frozen
class _Point:
    step: int
    seconds: float
    value: float


def curves(samples: Iterable[TaskSample], submitted_ms: int) -> list[Curve]:
    """The curves of one task's samples, which are in the order in which they were taken.

    Where there are too many metrics, those that were reported most often. Without a step a sample has that of the one
    before.
    """
    points: dict[str, list[_Point]] = {}
    step = 0
    for sample in samples:
        step = sample.step if sample.step is not None else step
        seconds = round((sample.time_ms - submitted_ms) / 1000, 1)
        for name, value in sample.metrics.items():
            if len(name) <= LONGEST_NAME:
                points.setdefault(name, []).append(_Point(step, seconds, value))
    reported = Counter({name: len(found) for name, found in points.items()})
    return [_curve(name, thinned(points[name], CURVE_POINTS)) for name, _ in reported.most_common(CURVES)]


def thinner(curve: Curve, points: int) -> Curve:
    """The curve with at most so many points."""
    values = [float(value) for value in curve.values]  # takes "NaN" and "Infinity" too
    found = [_Point(*each) for each in zip(curve.steps, curve.seconds, values, strict=True)]
    return _curve(curve.metric, thinned(found, points))


def thinned(points: Sequence[_Point], most: int) -> Sequence[_Point]:
    """At most so many of the points: the first, the last, and what is highest, lowest or no number in between.

    Where there are too many, of a stretch of one value only its ends count. ``most``: at least 5.
    """
    if len(points) <= most:
        return points
    points = _without_repeats(points)
    if len(points) <= most:
        return points
    inner = points[1:-1]
    buckets = (most - 2) // 3
    kept = [points[0]]
    for number in range(buckets):
        kept += _extremes(inner[number * len(inner) // buckets : (number + 1) * len(inner) // buckets])
    return [*kept, points[-1]]


def _without_repeats(points: Sequence[_Point]) -> Sequence[_Point]:
    """Without those between two of their own value, such as a ``val_loss`` that is told all through an epoch."""
    inner = zip(points, points[1:], points[2:], strict=False)
    kept = [at for before, at, after in inner if not (_same(before, at) and _same(at, after))]
    return [points[0], *kept, points[-1]]


def _same(one: _Point, other: _Point) -> bool:
    return one.value == other.value or (math.isnan(one.value) and math.isnan(other.value))


def _extremes(points: Sequence[_Point]) -> list[_Point]:
    """The lowest, the highest and the first that is no number, in the order in which they came."""
    numbers = [at for at, point in enumerate(points) if not math.isnan(point.value)]
    chosen = {at for at, point in enumerate(points) if math.isnan(point.value)}
    chosen = {min(chosen)} if chosen else set()
    if numbers:
        chosen |= {min(numbers, key=lambda at: points[at].value), max(numbers, key=lambda at: points[at].value)}
    return [points[at] for at in sorted(chosen)]


def _curve(metric: str, points: Sequence[_Point]) -> Curve:
    return Curve(
        metric=metric,
        steps=[point.step for point in points],
        seconds=[point.seconds for point in points],
        values=[to_plain(_rounded(point.value)) for point in points],
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
