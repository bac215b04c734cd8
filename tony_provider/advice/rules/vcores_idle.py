"""Processors that were asked for and did nothing."""

from __future__ import annotations

import math
from statistics import quantiles

import attrs

from tony_provider.advice.case import Case, TypeRuns, confidence
from tony_provider.advice.rule import Rule
from tony_provider.cluster.history.advice import Advice
from tony_provider.runtime.quantities import count

_HEAD_ROOM = 1.5  # times the mean
_WORTH = 0.75  # of what was asked: what is advised is at most that
_WEIGHT = 0.5  # of all that containers hold, processors count as half


@attrs.frozen
class VcoresIdle(Rule):
    """Others in the queue wait for processors that these containers hold and do not use."""

    name = "vcores-idle"

    least_seconds: float = 60.0  # that each task has worked: a short one has loaded its libraries, and little else

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded:
            return None
        types = {runs.now.type: runs for runs in case.types if self._says_something(runs)}
        needs = {name: _needed(case, runs) for name, runs in types.items()}
        wanted = {name: need for name, need in needs.items() if need <= _WORTH * types[name].now.vcores}
        if not wanted:
            return None
        held = sum(runs.now.vcores * runs.now.container_seconds for runs in case.types)
        spared = {
            name: (types[name].now.vcores - need) * types[name].now.container_seconds for name, need in wanted.items()
        }
        worst = max(wanted, key=lambda name: spared[name])
        now, former = types[worst].now, types[worst].former
        agreeing = [each for each in former if _cores(each.mean_cpu_percent) <= _WORTH * now.vcores]
        mean = now.mean_cpu_percent or 0.0
        return self.advice(
            f"Ask for {count(wanted[worst], 'vcore')} for each {worst} in place of {now.vcores}: "
            f"one kept {mean / 100:.1f} processors busy on average",
            _WEIGHT * sum(spared.values()) / held if held else 0.0,
            confidence(1 + len(agreeing), 1 + len(former)),
            {"tasks": {name: {"vcores": need} for name, need in wanted.items()}},
            task_type=worst,
            asked_vcores=now.vcores,
            mean_cpu_percent=mean,
            applications=1 + len(former),
        )

    def _says_something(self, runs: TypeRuns) -> bool:
        now = runs.now
        return now.mean_cpu_percent is not None and now.tasks > 0 and now.used_seconds / now.tasks >= self.least_seconds


def _needed(case: Case, runs: TypeRuns) -> int:
    """For the mean with head-room, of the run that used most; and for all but the busiest twentieth of the time."""
    means = [each.mean_cpu_percent for each in (runs.now, *runs.former)]
    kind = f"{runs.now.type}:"
    samples = [each.cpu_percent for each in case.job.samples if each.task.startswith(kind)]
    known = [each for each in samples if each is not None and math.isfinite(each)]
    often = quantiles(known, n=20)[-1] if len(known) > 1 else 0.0
    return max(math.ceil(often / 100), *map(_cores, means))


def _cores(mean_cpu_percent: float | None) -> int:
    return max(1, math.ceil(_HEAD_ROOM * (mean_cpu_percent or 0.0) / 100))
