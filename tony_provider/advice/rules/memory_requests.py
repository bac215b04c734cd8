"""Rules on requested memory: too little, or never used."""

from __future__ import annotations

import attrs

from tony_provider.advice import sizing
from tony_provider.advice.case import ENOUGH_TRAINING, Case, Rule, TypeRuns, agreement, confidence
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.protocol.status import FailureKind, TypeUse

_NEARLY = 0.9  # share of the requested memory
_AFTER_A_KILL = 1.5  # minimum factor on the requested memory, because the real need is unknown
_GAIN_OF_A_NEAR_MISS = 0.4
_GAIN_AFTER_A_KILL = 0.95


@attrs.frozen
class MemoryTooLittle(Rule):
    """Recommend more memory.

    YARN kills a container above its limit, and the training returns to its last checkpoint.
    """

    name = "memory-too-little"

    def advise(self, case: Case) -> Advice | None:
        killed = _killed(case)
        wanted = {runs.now.type: need for runs in case.types if (need := _needed_more(runs, runs.now.type in killed))}
        if not wanted:
            return None
        worst = max(wanted, key=lambda name: (name in killed, wanted[name]))
        runs = next(each for each in case.types if each.now.type == worst)
        most = sizing.most_used_memory(runs)
        agreeing = [each for each in runs.former if _is_near(each.most_rss_bytes, runs)]
        used = (
            f"one container used up to {sizing.memory_text(most / sizing.MIB)}" if most else "its memory was not enough"
        )
        why = f"one of its containers was killed for its memory, and {used}" if worst in killed else used
        return self.advice(
            f"Request {sizing.memory_text(wanted[worst])} of memory for each {worst} instead of "
            f"{sizing.memory_text(sizing.asked_memory(runs))}: {why}",
            _GAIN_AFTER_A_KILL if worst in killed else _GAIN_OF_A_NEAR_MISS,
            confidence(1 + len(agreeing) + (worst in killed), 1 + len(runs.former)),
            sizing.memory_change(wanted.items()),
            task_type=worst,
            asked_bytes=runs.now.memory_bytes,
            most_rss_bytes=most,
            most_rss_task=runs.now.most_rss_task,
            killed=worst in killed,
        )


def _killed(case: Case) -> set[str]:
    """Return the task types with a container that was killed for its memory."""
    raised = [event.get("data", {}).get("memory", {}) for event in case.events("memory_raised")]
    found = {task_type for each in raised for task_type in each}
    failure = case.failure
    if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY and failure.task:
        found.add(failure.task.rpartition(":")[0])
    return found


def _needed_more(runs: TypeRuns, killed: bool) -> int | None:
    """Return the memory in MiB to request, or None if the type has enough."""
    most = sizing.most_used_memory(runs)
    if killed:
        after = int(_AFTER_A_KILL * sizing.asked_memory(runs))
        return max(-(-after // sizing.MEMORY_STEP) * sizing.MEMORY_STEP, sizing.needed_memory(most or 0))
    return sizing.needed_memory(most) if most and _is_near(most, runs) else None


def _is_near(most: int | None, runs: TypeRuns) -> bool:
    return most is not None and most >= _NEARLY * runs.now.memory_bytes


@attrs.frozen
class MemoryTooMuch(Rule):
    """Recommend less memory, because other jobs in the queue wait for the unused part."""

    name = "memory-too-much"

    least_seconds: float = ENOUGH_TRAINING

    def advise(self, case: Case) -> Advice | None:
        if not case.succeeded or case.times.training < self.least_seconds:
            return None  # the job may have ended before its peak use
        surplus = sizing.Surplus.find(case.types, sizing.asked_memory, _needed_less)
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


def _needed_less(runs: TypeRuns) -> int | None:
    most = sizing.most_used_memory(runs)
    return sizing.needed_memory(most) if most and runs.now.most_rss_bytes is not None else None


def _is_surplus(use: TypeUse, asked: int) -> bool:
    return bool(use.most_rss_bytes) and sizing.is_surplus(asked, sizing.needed_memory(use.most_rss_bytes or 0))
