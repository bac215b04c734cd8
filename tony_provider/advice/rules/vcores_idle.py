"""Processors that were asked for and did nothing."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, confidence
from tony_provider.advice.sizing import needed_vcores
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.protocol.status import TypeUse

_WORTH = 0.75  # of what was asked: what is advised is at most that
_WEIGHT = 0.5  # of all that containers hold, processors count as half


@attrs.frozen
class VcoresIdle(Rule):
    """Others in the queue wait for processors that these containers hold and do not use."""

    name = "vcores-idle"

    least_seconds: float = ENOUGH_TRAINING  # that the job has trained, and each task has worked
    most_crowded: float = 10.0  # percent of the time that its node had no processors left for it

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None
        types = {runs.now.type: runs for runs in case.types if self._says_something(runs)}
        asked = {name: case.asked_vcores(runs.now) for name, runs in types.items()}
        needs = {
            name: max(needed_vcores(each, asked[name]) for each in (runs.now, *runs.former))
            for name, runs in types.items()
        }
        wanted = {name: need for name, need in needs.items() if need <= _WORTH * asked[name]}
        if not wanted:
            return None
        held = sum(case.asked_vcores(runs.now) * runs.now.container_seconds for runs in case.types)
        spared = {name: (asked[name] - need) * types[name].now.container_seconds for name, need in wanted.items()}
        worst = max(wanted, key=lambda name: spared[name])
        now, former = types[worst].now, types[worst].former
        agreeing = [
            each for each in former if self._tells(each) and needed_vcores(each, asked[worst]) <= _WORTH * asked[worst]
        ]
        mean, most = now.mean_cpu_percent or 0.0, now.most_cpu_percent or 0.0
        return self.advice(
            f"Ask for {count(wanted[worst], 'vcore')} for each {worst} in place of {asked[worst]}: "
            f"one kept {mean / 100:.1f} processors busy on average, and {most / 100:.1f} in its busiest half minute",
            _WEIGHT * sum(spared.values()) / held if held else 0.0,
            confidence(1 + len(agreeing), 1 + len(former)),
            {"tasks": {name: {"vcores": need} for name, need in wanted.items()}},
            task_type=worst,
            asked_vcores=asked[worst],
            mean_cpu_percent=mean,
            most_cpu_percent=most,
            crowded_percent=now.crowded_percent,
            applications=1 + len(former),
        )

    def _says_something(self, runs: TypeRuns) -> bool:
        now = runs.now
        return self._tells(now) and now.tasks > 0 and now.used_seconds / now.tasks >= self.least_seconds

    def _tells(self, use: TypeUse) -> bool:
        """Whether what it used is what it wanted; not where nobody knows what else ran on its node."""
        known = (use.mean_cpu_percent, use.most_cpu_percent, use.crowded_percent)
        return None not in known and (use.crowded_percent or 0.0) < self.most_crowded
