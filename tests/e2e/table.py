"""The table that `make e2e` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.row import Row

_HEADER = ("row", "what is done", "what was seen")
_WIDTHS = (26, 44, 62)
NOTES = """\
A row passes when, beside what it says, each training has had exactly the applications that it was meant to have, one
at a time, none was started that nobody asked for, no process, folder or staging of them is left, and the task's links
are those of its last try.
"""


@dataclass(frozen=True)
class Outcome:
    row: Row
    seen: str
    problems: list[str]
    seconds: float  # that the row took

    @property
    def good(self) -> bool:
        return not self.problems


def summary(outcomes: Sequence[Outcome]) -> str:
    """The whole table, what it means, and the sum of it."""
    lines = [header(), *(line for outcome in outcomes for line in lines_of(outcome))]
    bad = [outcome.row.name for outcome in outcomes if not outcome.good]
    passed = f"{len(outcomes) - len(bad)} of {len(outcomes)} rows passed"
    took = f" in {sum(outcome.seconds for outcome in outcomes) / 60:.0f} minutes"
    return "\n".join([*lines, "", NOTES, passed + took + (f"; not {', '.join(bad)}" if bad else "")])


def lines_of(outcome: Outcome) -> list[str]:
    """A row, as many lines as it needs."""
    cells = [outcome.row.name, outcome.row.act, outcome.seen]
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    lines = []
    for number in range(max(map(len, wrapped))):
        texts = [cell[number] if number < len(cell) else "" for cell in wrapped]
        verdict = "ok" if outcome.good else "BAD"
        lines.append(_line(texts, *((f"{outcome.seconds:.0f}", verdict) if number == 0 else ("", ""))))
    for problem in outcome.problems:
        first, *rest = problem.strip().splitlines() or [""]
        lines.append(f"    ! {first[:300]}" + (f" (and {len(rest)} lines more)" if rest else ""))
    return lines


def header() -> str:
    return _line(list(_HEADER), "s", "verdict")


def _line(texts: list[str], seconds: str, verdict: str) -> str:
    left = "  ".join(text.ljust(width) for text, width in zip(texts, _WIDTHS, strict=True))
    return f"{left}  {seconds:>4}  {verdict}".rstrip()
