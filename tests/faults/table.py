"""The table that `make faults` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.account import Account
from tests.faults.row import Row
from tests.faults.weights import TOLERANCE
from tests.named_rows import problem_lines, wrapped

_HEADER = ("row", "fault", "program", "what the job did", "lost", "back s", "training s", "verdict")
_WIDTHS = (24, 46, 7, 46)  # of the first columns, whose text is wrapped
NOTES = f"""\
lost: steps that had been done and were done again. back: seconds from the fault until every user process that had to
start again was there. training: seconds from the fault until a new step was reported, the program's own start included.
A row passes when the final weights equal those of an undisturbed run without any cluster (within {TOLERANCE:g}),
exactly one application trained at a time, and no process, folder or staging of it is left.
program: `train` is TensorFlow's MultiWorkerMirroredStrategy with two workers, `served` its ParameterServerStrategy;
`count` is a small program that stands for them where they add only minutes.
"""


@dataclass(frozen=True)
class Outcome:
    row: Row
    account: Account
    seconds: float  # that the row took

    @property
    def good(self) -> bool:
        return not self.account.problems


def summary(outcomes: Sequence[Outcome]) -> str:
    """The whole table, what it means, and the sum of it."""
    lines = [header(), *(line for outcome in outcomes for line in lines_of(outcome))]
    bad = [outcome.row.name for outcome in outcomes if not outcome.good]
    passed = f"{len(outcomes) - len(bad)} of {len(outcomes)} rows passed"
    took = f" in {sum(outcome.seconds for outcome in outcomes) / 60:.0f} minutes"
    lines += ["", NOTES, *aims(outcomes), "", passed + took + (f"; not {', '.join(bad)}" if bad else "")]
    return "\n".join(lines)


def lines_of(outcome: Outcome) -> list[str]:
    """A row, as many lines as it needs."""
    account = outcome.account
    cells = [outcome.row.name, outcome.row.fault, outcome.row.program, account.did]
    numbers = [
        "-" if account.lost is None else str(account.lost),
        "-" if account.back is None else f"{account.back:.1f}",
        "-" if account.training is None else f"{account.training:.1f}",
        "ok" if outcome.good else "BAD",
    ]
    lines = [
        _line(texts, [""] * len(numbers) if number else numbers) for number, texts in enumerate(wrapped(cells, _WIDTHS))
    ]
    return lines + problem_lines(account.problems, 200)


# By kinds or names of rows: until when every user process that was lost is to be there again.
AIMS = (
    ("user processes back after one died", ("process",), 1.0),
    ("user processes back after an executor died", ("executor-killed",), 3.0),
)


def aims(outcomes: Sequence[Outcome]) -> list[str]:
    """What was reached of what is aimed at, as far as these rows say."""
    lines = []
    for words, of, seconds in AIMS:
        seen = [(o.account.back, o.row.name) for o in outcomes if {o.row.name, o.row.kind} & {*of}]
        if measured := [(back, name) for back, name in seen if back is not None]:
            worst, name = max(measured)
            lines.append(f"{words}: at most {worst:.1f} s ({name}); the aim is {seconds:g} s")
    masters = [o for o in outcomes if o.row.name in ("master-killed", "master-killed-twice")]
    if masters:
        lost = [o.row.name for o in masters if o.account.back is not None]
        lines.append(
            f"user processes lost when the application master died: {', '.join(lost) or 'none'}; the aim is none"
        )
    return lines


def header() -> str:
    return _line(list(_HEADER[:4]), list(_HEADER[4:]))


def _line(texts: list[str], numbers: list[str]) -> str:
    left = "  ".join(text.ljust(width) for text, width in zip(texts, _WIDTHS, strict=True))
    return f"{left}  {numbers[0]:>4}  {numbers[1]:>6}  {numbers[2]:>10}  {numbers[3]}".rstrip()
