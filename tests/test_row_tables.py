"""How rows are run, and what the table says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.row_tables import Outcome, Table, run_row

TABLE = Table(texts=(("row", 8), ("what", 10)), numbers=(("lost", 4),), notes="notes")


@dataclass
class Row:
    name: str
    kind: str = "a-kind"


@dataclass
class Field:
    folder: Path
    problems: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)

    def conclude(self) -> None:
        self.acts.append("conclude")

    def report(self) -> str:
        return "what is known"

    def mend(self) -> None:
        self.acts.append("mend")


def test_a_row_that_passes_leaves_no_report(tmp_path: Path) -> None:
    here = Field(tmp_path)
    said, _ = run_row(here, lambda: "seen")
    assert (said, here.problems, here.acts) == ("seen", [], ["conclude", "mend"])
    assert list(tmp_path.iterdir()) == []


def test_what_a_row_raises_is_its_problem_and_the_cluster_is_mended(tmp_path: Path) -> None:
    here = Field(tmp_path)

    def run() -> str:
        raise ValueError("no job")

    said, _ = run_row(here, run)
    assert (said, here.problems, here.acts) == (None, ["ValueError: no job"], ["mend"])
    assert "what is known" in (tmp_path / "report.txt").read_text()
    assert "Traceback" in (tmp_path / "error.txt").read_text()


def test_the_table_wraps_texts_and_names_rows_that_failed() -> None:
    good = Outcome(Row("one"), ("one", "some words more"), [], 61.0, ("3",))
    bad = Outcome(Row("two"), ("two", "less"), ["first\nsecond"], 59.0, ("-",))
    assert TABLE.summary([good, bad], "more").splitlines() == [
        "row       what        lost     s  verdict",
        "one       some words     3    61  ok",
        "          more",
        "two       less           -    59  BAD",
        "    ! first (and 1 lines more)",
        "",
        "notes",
        "more",
        "1 of 2 rows passed in 2 minutes; not two",
    ]
