"""The states of job, tasks and containers in docs/reference/states.md, from the tables that the session obeys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.am.session import state_transitions
from tony_provider.runtime.am.session.state_transitions import Transitions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"

_TABLES: dict[str, Transitions[Any]] = {
    "job": state_transitions.JOB,
    "task": state_transitions.TASK,
    "container": state_transitions.CONTAINER,
}


def picture(name: str) -> str:
    """Each state, and below it those that can follow it, with the words for when. KeyError: nobody knows it."""
    transitions = _TABLES[name]
    following = [state for after in transitions.values() for state in after]
    width = max(len(state.value) for state in following)
    lines = []
    for state, after in transitions.items():
        lines.append(state.value)
        for number, (other, when) in enumerate(after.items(), 1):
            branch = "└─" if number == len(after) else "├─"
            lines.append(f"  {branch}► {other.value:{width}}  {when}")
    ends = [state.value for state in dict.fromkeys(following) if state not in transitions]
    if ends:
        lines.append(f"{', '.join(ends)}: nothing follows")
    return "```text\n" + "\n".join(lines) + "\n```\n"
