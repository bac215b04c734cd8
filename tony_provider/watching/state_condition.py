"""The job sensor's condition: the job is in one of some states."""

from __future__ import annotations

from typing import Any

from tony_provider.cluster.application_state import ApplicationState
from tony_provider.watching.job_search import JobObservation
from tony_provider.watching.sensor_conditions import SensorConditions, SensorEnd, SensorOutcome, state_of


class StateCondition(SensorConditions):
    """Condition of the job sensor: met when the job is in one of ``states``.

    :param states: see ``states_of``.
    """

    def __init__(self, *arguments: Any, states: frozenset[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._states = states

    def _of_live(self, seen: JobObservation, now: float) -> SensorOutcome | None:
        return self._outcome(SensorEnd.REACHED, seen) if self._states & _states_seen(seen) else None

    def _is_good_end(self, seen: JobObservation) -> bool:
        return bool(self._states & _states_seen(seen))


def _states_seen(seen: JobObservation) -> set[str]:
    """RUNNING is the job's word for its tasks where the job can be asked, and not the application's for its master."""
    states = {state_of(seen)}
    if seen.application is not None and seen.application.state is not ApplicationState.RUNNING:
        states.add(seen.application.state.value)
    elif seen.status is None and seen.found is not None and seen.found.identity is not None:
        states.discard(ApplicationState.RUNNING.value)  # its master has not said anything yet
    return states
