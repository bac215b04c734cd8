"""The table that `make e2e` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.row import Row
from tests.named_rows import problem_lines, wrapped

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
    ends = (f"{outcome.seconds:.0f}", "ok" if outcome.good else "BAD")
    lines = [_line(texts, *(("", "") if number else ends)) for number, texts in enumerate(wrapped(cells, _WIDTHS))]
    return lines + problem_lines(outcome.problems)


def header() -> str:
    return _line(list(_HEADER), "s", "verdict")


def _line(texts: list[str], seconds: str, verdict: str) -> str:
    left = "  ".join(text.ljust(width) for text, width in zip(texts, _WIDTHS, strict=True))
    return f"{left}  {seconds:>4}  {verdict}".rstrip()
