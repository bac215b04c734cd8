"""Rule on requested memory that was never used."""

from __future__ import annotations

import attrs

from tony_provider.advice import sizing
from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, agreement
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.protocol.status import TypeUse


@attrs.frozen
class MemoryTooMuch(Rule):
    """Recommend less memory, because other jobs in the queue wait for the unused part."""

    name = "memory-too-much"

    least_seconds: float = ENOUGH_TRAINING

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None  # the job may have ended before its peak use
        surplus = sizing.Surplus.find(case.types, sizing.asked_memory, _needed)
        if surplus is None:
            return None
        wanted, now, former = surplus.wanted, surplus.worst.now, surplus.worst.former
        asked, most = sizing.asked_memory(surplus.worst), sizing.most_used_memory(surplus.worst) or 0
        more = f"; {len(wanted) - 1} more task types request too much" if len(wanted) > 1 else ""
        return self.advice(
            f"Request {sizing.memory_text(wanted[now.type])} of memory for each {now.type} instead of "
            f"{sizing.memory_text(asked)}: one container used up to {sizing.memory_text(most / sizing.MIB)}{more}",
            surplus.gain,
            agreement(former, lambda use: _is_surplus(use, asked)),
            sizing.memory_change(wanted.items()),
            task_type=now.type,
            asked_bytes=now.memory_bytes,
            most_rss_bytes=most,
            most_rss_task=now.most_rss_task,
            applications=1 + len(former),
        )


def _needed(runs: TypeRuns) -> int | None:
    most = sizing.most_used_memory(runs)
    return sizing.needed_memory(most) if most and runs.now.most_rss_bytes is not None else None


def _is_surplus(use: TypeUse, asked: int) -> bool:
    return bool(use.most_rss_bytes) and sizing.is_surplus(asked, sizing.needed_memory(use.most_rss_bytes or 0))
