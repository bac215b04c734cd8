"""Rule on requested vcores that were mostly idle."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, agreement
from tony_provider.advice.sizing import Surplus, is_surplus, needed_vcores
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.protocol.status import TypeUse


@attrs.frozen
class VcoresIdle(Rule):
    """Recommend fewer vcores, because other jobs in the queue wait for the idle ones."""

    name = "vcores-idle"

    least_seconds: float = ENOUGH_TRAINING  # minimum training time of the job and working time of each task
    most_crowded: float = 10.0  # maximum percent of the time in which the node had no free processors for the task

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None
        surplus = Surplus.find(
            case.types, lambda runs: case.asked_vcores(runs.now), lambda runs: self._needed(runs, case)
        )
        if surplus is None:
            return None
        wanted, now, former = surplus.wanted, surplus.worst.now, surplus.worst.former
        asked = case.asked_vcores(now)
        mean, most = now.mean_cpu_percent or 0.0, now.most_cpu_percent or 0.0
        return self.advice(
            f"Request {count(wanted[now.type], 'vcore')} for each {now.type} instead of {asked}: "
            f"a task kept {mean / 100:.1f} processors busy on average, and {most / 100:.1f} in its busiest half minute",
            surplus.gain,
            agreement(former, lambda use: self._tells(use) and is_surplus(asked, needed_vcores(use, asked))),
            {"tasks": {name: {"vcores": need} for name, need in wanted.items()}},
            task_type=now.type,
            asked_vcores=asked,
            mean_cpu_percent=mean,
            most_cpu_percent=most,
            crowded_percent=now.crowded_percent,
            applications=1 + len(former),
        )

    def _needed(self, runs: TypeRuns, case: Case) -> int | None:
        now, asked = runs.now, case.asked_vcores(runs.now)
        if not self._tells(now) or now.tasks <= 0 or now.used_seconds / now.tasks < self.least_seconds:
            return None
        return max(needed_vcores(use, asked) for use in (now, *runs.former))

    def _tells(self, use: TypeUse) -> bool:
        """Return whether the use shows the need: the load of other programs on the node must be known and low."""
        known = (use.mean_cpu_percent, use.most_cpu_percent, use.crowded_percent)
        return None not in known and (use.crowded_percent or 0.0) < self.most_crowded
