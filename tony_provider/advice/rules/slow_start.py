"""Rule on the time from the start of the containers to the first step."""

from __future__ import annotations

import attrs

from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import span

_MUCH = 0.2  # share of the total time


@attrs.frozen
class SlowStart(Rule):
    """Recommend smaller files or prepared data if containers idle while files are copied or the program initializes."""

    name = "slow-start"

    least_seconds: float = 120.0  # shorter starts are normal

    def advise(self, case: Case) -> Advice | None:
        times = case.times
        share, confidence = case.share_of_time(lambda use: use.localisation + use.start, _MUCH)
        if times.localisation + times.start < self.least_seconds or share < _MUCH:
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
