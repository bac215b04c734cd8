"""Rule on learning curves that were flat long before the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import attrs

from tony_provider.advice.case import Case, Rule, gets_lower, telling
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.quantities import number, span

_BINS = 20  # sections of the curve; their medians suppress the noise
_POINTS = 2 * _BINS  # minimum number of points
_LEFT = 0.02  # a later gain below this share of the total gain is negligible
_FLAT = 0.4  # minimum share of the steps that must be flat
_FEW = 4  # minimum number of measurements for a conclusion
_DOUBT = 0.1  # share of the total gain that noise may hide in the flat part


@attrs.frozen
class FlatCurve(Rule):
    """Recommend a shorter training or a lower learning rate if a metric stopped improving."""

    name = "flat-curve"

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded:
            return None
        samples = [each for each in case.job.samples if each.task == case.status.leader and each.step is not None]
        for metric in telling({name for each in samples for name in each.metrics}):
            if (flat := _flat_from(samples, metric)) is not None:
                return self._said(samples, metric, *flat)
            if _points(samples, metric):
                return None  # the most relevant curve was still improving
        return None

    def _said(self, samples: Sequence[TaskSample], metric: str, step: int, best: float) -> Advice:
        last = max(each.step or 0 for each in samples)
        after = [each.seconds for each in samples if (each.step or 0) > step]
        share = sum(after) / (sum(each.seconds for each in samples) or 1.0)
        return self.advice(
            f"{metric} got no better than {number(best)} after step {step} of {last}: leave out the last "
            f"{span(sum(after))}, {share:.0%} of the training, or lower the learning rate at that step",
            share,
            Confidence.MEDIUM if len(after) >= _POINTS else Confidence.LOW,
            metric=metric,
            flat_from_step=step,
            last_step=last,
            best=best,
            seconds_after=sum(after),
        )


def _points(samples: Sequence[TaskSample], metric: str) -> list[tuple[int, float]]:
    """Return one point (step, value) per step, or an empty list if there are too few.

    A metric that is measured once per epoch is repeated in all samples until its next measurement. Only new values
    count.
    """
    known = {
        each.step or 0: each.metrics[metric] for each in samples if math.isfinite(each.metrics.get(metric, math.nan))
    }
    points = sorted(known.items())
    enough = len(points) >= _POINTS and len(_measured([value for _, value in points])) >= _BINS
    return points if enough else []


def _measured(values: Sequence[float]) -> list[float]:
    """Collapse consecutive equal values into one."""
    return [*values[:1], *(value for before, value in pairwise(values) if value != before)]


def _flat_from(samples: Sequence[TaskSample], metric: str) -> tuple[int, float] | None:
    """Return the step after which a metric did not improve, and its best value, or None if there is no such step."""
    points = _points(samples, metric)
    if not points:
        return None
    sign = -1.0 if gets_lower(metric) else 1.0
    cuts = [round(each * len(points) / _BINS) for each in range(_BINS + 1)]
    bins = [median(sign * value for _, value in points[start:end]) for start, end in pairwise(cuts)]
    best = max(bins)
    gained = best - bins[0]
    if gained <= 0 or not math.isfinite(gained):
        return None  # the metric never improved, which is a different problem
    reached = next(at for at, value in enumerate(bins) if best - value <= _LEFT * gained)
    end = cuts[reached + 1]
    step, first, last = points[end - 1][0], points[0][0], points[-1][0]
    if last - step < _FLAT * (last - first):
        return None
    later = [sign * value for _, value in points[end:]]
    return (step, sign * best) if _most_gained(later) <= _DOUBT * gained else None


def _most_gained(values: Sequence[float]) -> float:
    """Return an upper estimate of the second half's gain: the difference of the means plus two standard errors."""
    measured = _measured(values)
    if len(measured) == 1 and len(values) >= _FEW:
        return 0.0  # the metric no longer changed
    if len(measured) < _FEW:
        return math.inf
    half = len(measured) // 2
    (before, of_before), (after, of_after) = (_mean_and_error(each) for each in (measured[:half], measured[half:]))
    return after - before + 2 * math.sqrt(of_before + of_after)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its squared standard error."""
    middle = sum(values) / len(values)
    squares = sum((each - middle) * (each - middle) for each in values)
    return middle, squares / (len(values) - 1) / len(values)
