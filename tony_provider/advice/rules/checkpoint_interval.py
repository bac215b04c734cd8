"""Rule on the interval between checkpoints, by the formula of Young and Daly."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import DROPPED
from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.protocol.status import TimeUse

_WORTH = 0.02  # share of the time that a better interval must save
_WORTH_UNTRIED = 0.3  # the same share without a failure so far, because then only very costly copies matter
_LEAST_COPY = 1.0  # minimum seconds for a copy, because the program's own time to save is unknown and not 0


@attrs.frozen
class CheckpointInterval(Rule):
    """Recommend the interval sqrt(2 · copy · time between failures) between checkpoints.

    On average, a failure costs half an interval. A checkpoint costs the duration of its copy.
    """

    name = "checkpoint-interval"

    least_seconds: float = 300.0  # minimum training time of all applications together; less counts as a trial

    def advise(self, case: Case) -> Advice | None:
        if any(case.events(DROPPED)):
            return None  # the number and times of the checkpoints are unknown
        saved = _saved(case)
        worked = sum(_worked(each) for each in (case.times, *(run.times for run in case.former)))
        if worked < self.least_seconds:
            return None
        if not saved:
            return self._none_saved(case)
        later = [after - before for before, after in pairwise(saved) if after > before]
        failures = case.restarts + sum(run.restarts for run in case.former)
        if not (later or failures):
            return None
        interval = median(later) if later else _worked(case.times) / len(saved)
        between = worked / max(1, failures)  # a lower bound if there was no failure
        copied = case.times.checkpoints / len(saved)
        rare = interval > best_interval(copied, between)
        copy = max(copied, _LEAST_COPY) if rare else copied
        best = best_interval(copy, between)
        if best <= 0 or (rare and (interval <= best or not failures)):
            return None
        gain = cost(interval, copy, between) - cost(best, copy, between)
        if gain < (_WORTH if failures else _WORTH_UNTRIED):
            return None
        how_often = "more often" if rare else "less often"
        takes = span(copied) if copied >= 1 else "less than 1 s"
        return self.advice(
            f"Save checkpoints {how_often}: every {span(best)} instead of every {span(interval)}, because a copy "
            f"takes {takes} and the job had {count(failures, 'restart')} in {span(worked)}",
            gain,
            confidence(failures, failures),
            copy_seconds=copied,
            interval_seconds=interval,
            best_interval_seconds=best,
            seconds_between_failures=between,
            failures=failures,
            applications=1 + len(case.former),
        )

    def _none_saved(self, case: Case) -> Advice | None:
        again = case.times.repeated
        if not case.restarts or again <= _WORTH * case.times.training:
            return None
        return self.advice(
            f"Save checkpoints in TONY_CHECKPOINT_DIR: no checkpoint was saved, and {count(case.restarts, 'restart')} "
            f"caused {span(again)} of repeated training",
            again / max(again, case.times.training),
            Confidence.MEDIUM,
            repeated_seconds=again,
            restarts=case.restarts,
        )


def best_interval(copy: float, between: float) -> float:
    """Return Young's interval in seconds.

    ``copy`` is the duration of a checkpoint, ``between`` the time between failures.
    """
    return math.sqrt(2 * copy * between)


def cost(interval: float, copy: float, between: float) -> float:
    """Return the share of the time that checkpoints and failures cost at this interval."""
    return copy / interval + interval / (2 * between)


def _saved(case: Case) -> list[float]:
    """Return the time of each save in seconds. If it is unknown, use the checkpoint's arrival on the store."""
    found = []
    for event in case.events("checkpoint"):
        point = event.get("data", {}).get("checkpoint", {})
        found.append((point.get("saved_ms") or event["time_ms"]) / 1000)
    return found


def _worked(times: TimeUse) -> float:
    return times.training + times.restarts
