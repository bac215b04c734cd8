"""Rule on long waits for the containers of a whole gang."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.advice import sizing
from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.jobspec.model import StartRule

_MUCH = 0.3  # share of the total time


@attrs.frozen
class QueueWait(Rule):
    """Recommend a smaller or staggered start, because a full queue delays large simultaneous requests the longest."""

    name = "queue-wait"

    least_seconds: float = 300.0  # shorter waits are normal

    def advise(self, case: Case) -> Advice | None:
        waited, (share, confidence) = case.times.waiting, case.share_of_time(lambda times: times.waiting, _MUCH)
        if waited < self.least_seconds or share < _MUCH:
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
