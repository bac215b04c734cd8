"""Rule on requested vcores that were mostly idle."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, confidence
from tony_provider.advice.sizing import needed_vcores
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.protocol.status import TypeUse

_WORTH = 0.75  # factor on the requested vcores; fewer are recommended only if they are below this
_WEIGHT = 0.5  # vcores count as half of a container's resources


@attrs.frozen
class VcoresIdle(Rule):
    """Recommend fewer vcores, because other jobs in the queue wait for the idle ones."""

    name = "vcores-idle"

    least_seconds: float = ENOUGH_TRAINING  # minimum training time of the job and working time of each task
    most_crowded: float = 10.0  # percent of the time in which the node had no free processors for it

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
        """Return whether the use shows the need. It does not if the load of other programs on the node is unknown."""
        known = (use.mean_cpu_percent, use.most_cpu_percent, use.crowded_percent)
        return None not in known and (use.crowded_percent or 0.0) < self.most_crowded
