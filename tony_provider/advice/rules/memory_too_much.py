"""Rule on requested memory that was never used."""

from __future__ import annotations

import attrs

from tony_provider.advice import sizing
from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, confidence
from tony_provider.cluster.records.summary import Advice

_WORTH = 0.75  # factor on the requested memory; less is recommended only if it is below this
_WEIGHT = 0.5  # memory counts as half of a container's resources


@attrs.frozen
class MemoryTooMuch(Rule):
    """Recommend less memory, because other jobs in the queue wait for the unused part."""

    name = "memory-too-much"

    least_seconds: float = ENOUGH_TRAINING

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None  # it may have ended before its peak
        types = {runs.now.type: (runs, most) for runs in case.types if (most := sizing.most_used_memory(runs))}
        wanted = {name: sizing.needed_memory(most) for name, (runs, most) in types.items() if _too_much(runs, most)}
        if not wanted:
            return None
        held = sum(each.now.memory_bytes * each.now.container_seconds for each in case.types)
        spared = {name: (sizing.asked_memory(types[name][0]) - need) * sizing.MIB for name, need in wanted.items()}
        gain = sum(types[name][0].now.container_seconds * spared[name] for name in wanted) / held if held else 0.0
        worst = max(wanted, key=lambda name: spared[name] * types[name][0].now.tasks)
        runs, most = types[worst]
        agreeing = [each for each in runs.former if each.most_rss_bytes and _fits(each.most_rss_bytes, runs)]
        more = f"; {len(wanted) - 1} more task types ask for too much" if len(wanted) > 1 else ""
        return self.advice(
            f"Ask for {sizing.memory_text(wanted[worst])} of memory for each {worst} in place of "
            f"{sizing.memory_text(sizing.asked_memory(runs))}: the most that one used was "
            f"{sizing.memory_text(most / sizing.MIB)}{more}",
            _WEIGHT * gain,
            confidence(1 + len(agreeing), 1 + len(runs.former)),
            sizing.memory_change(wanted.items()),
            task_type=worst,
            asked_bytes=runs.now.memory_bytes,
            most_rss_bytes=most,
            most_rss_task=runs.now.most_rss_task,
            applications=1 + len(runs.former),
        )


def _too_much(runs: TypeRuns, most: int) -> bool:
    return runs.now.most_rss_bytes is not None and _fits(most, runs)


def _fits(most: int, runs: TypeRuns) -> bool:
    return sizing.needed_memory(most) <= _WORTH * sizing.asked_memory(runs)
