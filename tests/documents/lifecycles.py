"""The states of job, tasks and containers in docs/how-it-works.md, made of the tables that the session obeys.

In the page a picture stands between two comments, ``<!-- states: task -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

from tony_provider.runtime.am.session.state import lifecycle
from tony_provider.runtime.am.session.state.lifecycle import Transitions

PAGE = Path(__file__).parents[2] / "docs" / "how-it-works.md"

_BLOCK = re.compile(r"(<!-- states: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TABLES: dict[str, Transitions[Any]] = {
    "job": lifecycle.JOB,
    "task": lifecycle.TASK,
    "container": lifecycle.CONTAINER,
}


def renewed(page: str) -> str:
    """The page with every picture as the code has it. KeyError: one that nobody knows."""
    return _BLOCK.sub(lambda block: block[1] + picture(_TABLES[block[2]]) + block[3], page)


def pictures_of(page: str) -> list[str]:
    return [block[2] for block in _BLOCK.finditer(page)]


def picture(transitions: Transitions[Enum]) -> str:
    """Each state, and below it those that can follow it, with the words for when."""
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
