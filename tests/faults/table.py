"""The table that `make faults` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests import row_tables
from tests.faults.account import Account
from tests.faults.row import Row
from tests.faults.weights import TOLERANCE

TABLE = row_tables.Table(
    texts=(("row", 24), ("fault", 46), ("program", 7), ("what the job did", 46)),
    numbers=(("lost", 4), ("back s", 6), ("training s", 10)),
    notes=f"""\
lost: steps that had been done and were done again. back: seconds from the fault until every user process that had to
start again was there. training: seconds from the fault until a new step was reported, the program's own start included.
s: what the row took. A row passes when the final weights equal those of an undisturbed run without any cluster (within
{TOLERANCE:g}), exactly one application trained at a time, and no process, folder or staging of it is left.
program: `train` is TensorFlow's MultiWorkerMirroredStrategy with two workers, `served` its ParameterServerStrategy;
`count` is a small program that stands for them where they add only minutes.
""",
)


@dataclass(frozen=True)
class Outcome(row_tables.Outcome):
    account: Account | None = None  # of a row that got to its end


def outcome_of(row: Row, account: Account | None, problems: list[str], seconds: float) -> Outcome:
    did = row_tables.NOT_TO_ITS_END if account is None else account.did
    costs = (None, None, None) if account is None else (account.lost, account.back, account.training)
    numbers = tuple("-" if cost is None else f"{cost}" if isinstance(cost, int) else f"{cost:.1f}" for cost in costs)
    return Outcome(row, (row.name, row.fault, row.program, did), problems, seconds, numbers, account)


def summary(outcomes: Sequence[Outcome]) -> str:
    """The whole table, and what was reached of what is aimed at."""
    return TABLE.summary(outcomes, *aims(outcomes), "")


# By kinds or names of rows: until when every user process that was lost is to be there again.
AIMS = (
    ("user processes back after one died", ("process",), 1.0),
    ("user processes back after an executor died", ("executor-killed",), 3.0),
)


def aims(outcomes: Sequence[Outcome]) -> list[str]:
    """What was reached of what is aimed at, as far as these rows say."""
    lines = []
    for words, of, seconds in AIMS:
        seen = [(_back(o), o.row.name) for o in outcomes if {o.row.name, o.row.kind} & {*of}]
        if measured := [(back, name) for back, name in seen if back is not None]:
            worst, name = max(measured)
            lines.append(f"{words}: at most {worst:.1f} s ({name}); the aim is {seconds:g} s")
    masters = [o for o in outcomes if o.row.name in ("master-killed", "master-killed-twice")]
    if masters:
        lost = [o.row.name for o in masters if _back(o) is not None]
        lines.append(
            f"user processes lost when the application master died: {', '.join(lost) or 'none'}; the aim is none"
        )
    return lines


def _back(outcome: Outcome) -> float | None:
    return outcome.account.back if outcome.account is not None else None
