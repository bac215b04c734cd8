"""The job sensor's condition: the job is in one of some states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tony_provider.cluster.base import ApplicationState
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.watching.job_search import JobSighting
from tony_provider.watching.sensor_conditions import SensorConditions, SensorEnd, SensorOutcome, state_of

STATES = list(dict.fromkeys([state.value for kind in (JobState, ApplicationState) for state in kind]))


def states_of(given: Iterable[str] | str) -> frozenset[str]:
    """The names of states that a list, or text with commas, holds. Raises ValueError for unknown ones and for none."""
    names = given.split(",") if isinstance(given, str) else list(given)
    states = [str(getattr(name, "value", name)).strip().upper() for name in names]
    for state in states:
        if state not in STATES:
            hint = suggestion(state, [each.lower() for each in STATES])
            raise ValueError(f"states: {state!r} is no state{hint}; they may be {', '.join(STATES)}")
    if not states:
        raise ValueError(f"states: there is none; they may be {', '.join(STATES)}")
    return frozenset(states)


class StateCondition(SensorConditions):
    """Condition of the job sensor: met when the job is in one of ``states``.

    :param states: see ``states_of``.
    """

    def __init__(self, *arguments: Any, states: frozenset[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._states = states

    def _of_live(self, seen: JobSighting, now: float) -> SensorOutcome | None:
        return self._outcome(SensorEnd.REACHED, seen) if self._states & _states_seen(seen) else None

    def _is_good_end(self, seen: JobSighting) -> bool:
        return bool(self._states & _states_seen(seen))


def _states_seen(seen: JobSighting) -> set[str]:
    """RUNNING is the job's word for its tasks where the job can be asked, and not the application's for its master."""
    states = {state_of(seen)}
    if seen.application is not None and seen.application.state is not ApplicationState.RUNNING:
        states.add(seen.application.state.value)
    elif seen.status is None and seen.found is not None and seen.found.identity is not None:
        states.discard(ApplicationState.RUNNING.value)  # its master has not said anything yet
    return states
