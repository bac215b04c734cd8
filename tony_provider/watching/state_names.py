"""The names of states that a sensor can wait for. Every DAG file with a sensor loads it."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.cluster.application_state import ApplicationState
from tony_provider.runtime.protocol.status import JobState

STATES = list(dict.fromkeys([state.value for kind in (JobState, ApplicationState) for state in kind]))


def states_of(given: Iterable[str] | str) -> frozenset[str]:
    """The names of states that a list, or text with commas, holds. Raises ValueError for unknown ones and for none."""
    names = given.split(",") if isinstance(given, str) else list(given)
    states = [str(getattr(name, "value", name)).strip().upper() for name in names]
    for state in states:
        if state not in STATES:
            from tony_provider.runtime.spec.reader import suggestion  # here: it is slow to load, and seldom needed

            hint = suggestion(state, [each.lower() for each in STATES])
            raise ValueError(f"states: {state!r} is no state{hint}; they may be {', '.join(STATES)}")
    if not states:
        raise ValueError(f"states: there is none; they may be {', '.join(STATES)}")
    return frozenset(states)
