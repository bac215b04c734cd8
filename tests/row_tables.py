"""The tables that `make faults`, `make e2e` and `make secure` print: running a row, and telling what came of it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from tests.named_rows import NamedRow, problem_lines, wrapped

T = TypeVar("T")
NOT_TO_ITS_END = "did not get to its end"


class RowField(Protocol):
    """Where one row runs."""

    @property
    def folder(self) -> Path:
        """For what is known of a row that failed."""

    @property
    def problems(self) -> list[str]: ...

    def conclude(self) -> None:
        """Look whether all holds that must hold after every row."""

    def report(self) -> str:
        """What is known of what the row had started, for who looks into a failure."""

    def mend(self) -> None:
        """Have everything whole, and nothing of the row going on."""


def run_row(field: RowField, run: Callable[[], T]) -> tuple[T | None, float]:
    """What the row said, None where it did not get to its end, and the seconds that it took.

    Whatever it raises is one of its problems. Raises what mending raises: no other row can run then.
    """
    begun, said = time.monotonic(), None
    try:
        said = run()
        field.conclude()
    except Exception as error:  # noqa: BLE001 - the other rows are to run
        field.problems.append(f"{type(error).__name__}: {error}")
        (field.folder / "error.txt").write_text(traceback.format_exc())
    if field.problems:
        (field.folder / "report.txt").write_text("\n\n".join([*field.problems, field.report()]))
    seconds = time.monotonic() - begun
    field.mend()
    return said, seconds


@dataclass(frozen=True)
class Outcome:
    """What came of a row: what the table's columns say of it, texts first, and what was wrong."""

    row: NamedRow
    texts: tuple[str, ...]
    problems: list[str]
    seconds: float  # that the row took
    numbers: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Table:
    """Columns are titles and widths: of texts, which are wrapped, and of numbers; then the seconds and the verdict."""

    texts: Sequence[tuple[str, int]]
    notes: str
    numbers: Sequence[tuple[str, int]] = ()

    def header(self) -> str:
        return self._line([title for title, _ in self.texts], [*(title for title, _ in self.numbers), "s"], "verdict")

    def lines_of(self, outcome: Outcome) -> list[str]:
        """A row, as many lines as it needs."""
        first, *more = wrapped(outcome.texts, [width for _, width in self.texts])
        ends = [*outcome.numbers, f"{outcome.seconds:.0f}"]
        lines = [self._line(first, ends, "ok" if outcome.good else "BAD")]
        lines += [self._line(texts, [""] * len(ends), "") for texts in more]
        return lines + problem_lines(outcome.problems)

    def summary(self, outcomes: Sequence[Outcome], *more: str) -> str:
        """The whole table, what it means, what else there is to say, and the sum of it."""
        lines = [self.header(), *(line for outcome in outcomes for line in self.lines_of(outcome))]
        bad = [outcome.row.name for outcome in outcomes if not outcome.good]
        passed = f"{len(outcomes) - len(bad)} of {len(outcomes)} rows passed"
        took = f" in {sum(outcome.seconds for outcome in outcomes) / 60:.0f} minutes"
        return "\n".join([*lines, "", self.notes, *more, passed + took + (f"; not {', '.join(bad)}" if bad else "")])

    def _line(self, texts: Sequence[str], numbers: Sequence[str], verdict: str) -> str:
        cells = [text.ljust(width) for text, (_, width) in zip(texts, self.texts, strict=True)]
        cells += [text.rjust(width) for text, (_, width) in zip(numbers, [*self.numbers, ("s", 4)], strict=True)]
        return "  ".join([*cells, verdict]).rstrip()
