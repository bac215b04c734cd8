"""What a benchmark has found: ratios round by round, aims, tables, and the file of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import given

from benchmarks.machine import Machine
from benchmarks.report import OURS, Aim, Better, Figure, Ratio, Report, Run, Size, by_name, read, read_all
from tests.benchmarks.reports import reports, run, small


def test_a_ratio_is_one_for_each_round() -> None:
    """The second round was twice as slow for both: the ratio does not know of it."""
    ours = Figure("first", OURS, "s", [1.0, 2.0, 1.0], Size(2, "tasks"))
    theirs = Figure("first", "skein", "s", [4.0, 8.0, 2.0], Size(2, "tasks"))
    ratio = Ratio.between(ours, theirs, Aim(0.3))
    assert (ratio.values, ratio.median, ratio.holds) == ([0.25, 0.25, 0.5], 0.25, True)
    assert ratio.name == "first, 2 tasks: ratio to skein"


def test_those_with_another_number_of_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="longer"):
        Ratio.between(Figure("first", OURS, "s", [1.0]), Figure("first", "skein", "s", [1.0, 2.0]))


@pytest.mark.parametrize(
    ("aim", "value", "holds"),
    [
        (Aim(1.0), 1.0, True),
        (Aim(1.0), 1.1, False),
        (Aim(0.9, Better.MORE), 0.9, True),
        (Aim(0.9, Better.MORE), 0.8, False),
    ],
)
def test_aims(aim: Aim, value: float, holds: bool) -> None:
    assert Ratio.alone(Figure("copied", OURS, "s", [value]), aim).holds is holds


def test_which_way_is_better_is_as_aimed_at() -> None:
    assert Ratio("a", "b", [1.0]).better is Better.LESS
    assert Ratio("a", "b", [1.0], Aim(0.9, Better.MORE)).better is Better.MORE


def test_ratios_come_first_and_a_missed_aim_is_said() -> None:
    lines = small(first=2.0).text().splitlines()
    ratio, alone = lines[3], lines[4]
    assert " ".join(ratio.split()) == "first, 2 tasks: ratio to skein 1 1 - 1 at most 0.6 MISSED"
    assert " ".join(alone.split()) == "first, 2 tasks 4.2 s 4 - 4.4 at most 3 MISSED"
    assert " ".join(lines[7].split()) == "first, 1 tasks tony_provider 2.1 2 - 2.2 s"


def test_figures_are_found_by_their_name_and_whose_they_are() -> None:
    assert by_name(small().figures)["first, 2 tasks", "skein"].values == [4.0, 4.4]


@given(reports)
def test_what_was_written_is_read_but_for_the_sixth_digit(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = run(report).write(Path(name))
        once = read(path)
        assert read(once.write(Path(name))) == once
    assert attrs.evolve(once.report, figures=[], ratios=[]) == attrs.evolve(report, figures=[], ratios=[])
    assert [each.name for each in once.report.figures] == [each.name for each in report.figures]
    assert [each.name for each in once.report.ratios] == [each.name for each in report.ratios]
    found = [*(each.values for each in once.report.figures), *(each.values for each in once.report.ratios)]
    made = [*(each.values for each in report.figures), *(each.values for each in report.ratios)]
    for values, those in zip(found, made, strict=True):
        assert values == pytest.approx(those, rel=1e-4)
    assert [(each.better, each.unit) for each in once.report.ratios] == [
        (each.better, each.unit) for each in report.ratios
    ]


def test_reports_of_a_directory(tmp_path: Path) -> None:
    for name in ("launch", "scale"):
        run(small(name)).write(tmp_path)
    assert {name: each.report.name for name, each in read_all(tmp_path).items()} == {
        "launch": "launch",
        "scale": "scale",
    }


def test_a_run_knows_its_machine() -> None:
    here = Run.here(small()).machine
    assert here.like(Machine.this())
    assert not here.like(attrs.evolve(here, processors=here.processors + 1))
    assert here.like(attrs.evolve(here, kernel="another"))
    assert here.memory_gib >= 1
