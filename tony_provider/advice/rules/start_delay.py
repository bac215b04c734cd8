"""Rules on the time before the first step."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.advice import sizing
from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.jobspec.model import StartRule

_MUCH_WAIT = 0.3  # share of the total time


@attrs.frozen
class QueueWait(Rule):
    """Recommend a smaller or staggered start, because a full queue delays large simultaneous requests the longest."""

    name = "queue-wait"

    least_seconds: float = 300.0  # shorter waits are normal

    def advise(self, case: Case) -> Advice | None:
        waited, (share, confidence) = case.times.waiting, case.share_of_time(lambda times: times.waiting, _MUCH_WAIT)
        if waited < self.least_seconds or share < _MUCH_WAIT:
            return None
        use = [runs.now for runs in case.types]
        containers = sum(each.tasks for each in use)
        mebibytes = sum(each.tasks * each.memory_bytes for each in use) / sizing.MIB
        change = _change(case)
        what = (
            "let each task start when its container is granted"
            if change
            else "request fewer or smaller ones, or use another queue"
        )
        return self.advice(
            f"The job waited {span(waited)}, {share:.0%} of its time, for {count(containers, 'container')} "
            f"({sizing.memory_text(mebibytes)}) at once: {what}",
            share,
            confidence,
            change,
            queue_seconds=case.times.queue,
            allocation_seconds=case.times.allocation,
            containers=containers,
            memory_bytes=mebibytes * sizing.MIB,
        )


def _change(case: Case) -> dict[str, Any] | None:
    """Return a change for frameworks whose tasks can start independently, or None."""
    spec = case.spec
    if (
        spec is None
        or spec.start is not StartRule.GANG
        or spec.size == 1
        or not get_framework(spec.framework).first_come
    ):
        return None
    return {"start": StartRule.FIRST_COME.value}


_MUCH_START = 0.2  # share of the total time


@attrs.frozen
class SlowStart(Rule):
    """Recommend smaller files or prepared data if containers idle while files are copied or the program initializes."""

    name = "slow-start"

    least_seconds: float = 120.0  # shorter starts are normal

    def advise(self, case: Case) -> Advice | None:
        times = case.times
        share, confidence = case.share_of_time(lambda use: use.localisation + use.start, _MUCH_START)
        if times.localisation + times.start < self.least_seconds or share < _MUCH_START:
            return None
        if not times.training:  # without a first step the start time is unknown
            return None
        what = (
            "send fewer files: use an environment that the nodes have, or a smaller archive"
            if times.localisation > times.start
            else "prepare the data earlier, in a separate task type, or cache compiled code"
        )
        return self.advice(
            f"The containers took {span(times.localisation)} to get their files and {span(times.start)} to their first "
            f"step, {share:.0%} of its time: {what}",
            share,
            confidence,
            localisation_seconds=times.localisation,
            start_seconds=times.start,
            generations=case.status.generation,
        )
