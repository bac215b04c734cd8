"""The table that `make secure` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.named_rows import problem_lines, wrapped
from tests.secure.row import Row

_HEADER = ("row", "attempt", "by whom", "what happened", "cost")
_WIDTHS = (24, 46, 16, 58, 22)
NOTES = """\
The cluster has Kerberos and https throughout, and runs containers as their users: by LinuxContainerExecutor, whose
native program is a stand-in of the tests. alice's job is the one that is attacked. A row passes when nothing of the
attempt had any effect, and her job went on to SUCCEEDED and left nothing. Several rows attack one job together: after
each it must run as before, with its first containers, and it ends when the last of them is over.
cost: what the attempt cost her job or the machine, where there is something to tell.
"""


@dataclass(frozen=True)
class Outcome:
    row: Row
    happened: str
    cost: str
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
    row = outcome.row
    ends = (f"{outcome.seconds:.0f}", "ok" if outcome.good else "BAD")
    cells = (row.name, row.attempt, row.by, outcome.happened, outcome.cost)
    lines = [_line(texts, *(("", "") if number else ends)) for number, texts in enumerate(wrapped(cells, _WIDTHS))]
    return lines + problem_lines(outcome.problems)


def header() -> str:
    return _line(_HEADER, "s", "verdict")


def _line(texts: Sequence[str], seconds: str, verdict: str) -> str:
    left = "  ".join(text.ljust(width) for text, width in zip(texts, _WIDTHS, strict=True))
    return f"{left}  {seconds:>4}  {verdict}".rstrip()
