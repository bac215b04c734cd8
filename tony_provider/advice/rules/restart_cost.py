"""Rule on the time that restarts cost."""

from __future__ import annotations

from collections import Counter

import attrs

from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count, span

_MUCH = 0.1  # share of the total time


@attrs.frozen
class RestartCost(Rule):
    """Recommend finding the cause of restarts that cost much time. Jobs recover from single restarts by themselves."""

    name = "restart-cost"

    least_seconds: float = 60.0  # minimum time lost to restarts; less needs no action

    def advise(self, case: Case) -> Advice | None:
        down, again = case.times.restarts, case.times.repeated
        share, confidence = case.share_of_time(lambda times: times.restarts + times.repeated, _MUCH)
        if not case.restarts or share < _MUCH or down + again < self.least_seconds:
            return None
        failed = Counter(str(each.get("task")) for each in case.events("failed") if each.get("task"))
        [(task, times)] = failed.most_common(1) or [("", 0)]
        often = f" {times} of {failed.total()} times" if failed.total() > 1 else ""
        who = f"; {task} failed{often}, so check its log first" if task else ""
        return self.advice(
            f"{count(case.restarts, 'restart')} cost {share:.0%} of its time: {span(down)} until it trained again, and "
            f"{span(again)} of repeated training{who}",
            share,
            confidence,
            restarts=case.restarts,
            down_seconds=down,
            repeated_seconds=again,
            failed=dict(failed.most_common(5)),
        )
