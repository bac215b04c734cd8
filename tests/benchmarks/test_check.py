"""The newest run beside the one that is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given

from benchmarks import check
from benchmarks.check import Comparison, Verdict, compare, compared
from benchmarks.report import Aim, Better, Ratio, Report
from tests.benchmarks.reports import MACHINE, reports, run, small

KEPT = Ratio("first", "skein", [0.40, 0.41, 0.42])


def verdict(newer: list[float] | None, kept: Ratio = KEPT, same_machine: bool = True) -> Verdict:
    now = None if newer is None else attrs.evolve(kept, values=newer)
    return compare("launch", kept, now, same_machine).verdict


def test_worse_and_better_beyond_the_noise() -> None:
    assert verdict([0.60, 0.61, 0.62]) is Verdict.WORSE
    assert verdict([0.20, 0.21, 0.22]) is Verdict.BETTER
    assert verdict([0.42, 0.43, 0.42]) is Verdict.SAME


def test_where_more_is_better() -> None:
    kept = Ratio("copied", "raw", [0.95, 0.96, 0.97], Aim(0.95, Better.MORE))
    assert verdict([0.70, 0.71, 0.72], kept) is Verdict.WORSE
    assert verdict([1.20, 1.21, 1.22], kept) is Verdict.BETTER


def test_a_noisy_run_is_not_called_worse() -> None:
    assert verdict([0.35, 0.60, 1.20]) is Verdict.SAME


def test_one_round_in_each_is_not_judged() -> None:
    assert verdict([9.0], attrs.evolve(KEPT, values=[1.0])) is Verdict.ONE_ROUND


def test_a_figure_that_stands_alone_is_judged_on_the_same_machine_only() -> None:
    alone = Ratio("memory", "", [40.0, 41.0], Aim(45.0), "MiB")
    assert verdict([80.0, 81.0], alone) is Verdict.WORSE
    assert verdict([80.0, 81.0], alone, same_machine=False) is Verdict.ANOTHER_MACHINE
    assert verdict([0.60, 0.61, 0.62], same_machine=False) is Verdict.WORSE


@given(reports)
def test_a_run_beside_itself_is_the_same(report: Report) -> None:
    unnamed = {ratio.name: ratio for ratio in report.ratios}
    once = run(attrs.evolve(report, ratios=list(unnamed.values())))
    found = list(compared({report.name: once}, {report.name: once}))
    assert [each.kept for each in found] == once.report.ratios
    assert not any(each.fails or each.verdict is Verdict.BETTER for each in found)


def test_what_is_kept_and_was_not_measured_fails() -> None:
    kept = {"launch": run(small("launch")), "scale": run(small("scale"))}
    newest = {"launch": run(attrs.evolve(small("launch"), ratios=small("launch").ratios[:1]))}
    found = list(compared(kept, newest))
    assert [(each.benchmark, each.fails) for each in found] == [
        ("launch", False),
        ("launch", True),
        ("scale", True),
        ("scale", True),
    ]


def test_what_fails_is_named() -> None:
    worse = Comparison("launch", KEPT, attrs.evolve(KEPT, values=[0.6, 0.6]), 0.1, Verdict.WORSE)
    same = Comparison("scale", KEPT, KEPT, 0.1, Verdict.SAME)
    assert check.table([worse, same]).splitlines()[-2:] == [
        "1 of 2 ratios fail:",
        "launch: first: ratio to skein: WORSE",
    ]
    assert check.table([same]).splitlines()[-1] == "none of 1 ratios got worse"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where runs are kept, and where the newest are."""
    kept, newest = tmp_path / "kept", tmp_path / "newest"
    monkeypatch.setattr(check, "KEPT", kept)
    return kept, newest


def called(monkeypatch: pytest.MonkeyPatch, newest: Path, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["check", "--output", str(newest), *arguments])
    return check.main()


def test_the_program_keeps_a_run_and_then_judges_by_it(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, newest = folders
    run(small()).write(newest)
    assert called(monkeypatch, newest, "--keep") == 0
    assert [path.name for path in kept.iterdir()] == ["launch.json"]
    assert called(monkeypatch, newest) == 0
    run(small(first=2.0), attrs.evolve(MACHINE, model="another")).write(newest)
    capsys.readouterr()
    assert called(monkeypatch, newest) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "1 of 2 ratios fail:",
        "launch: first, 2 tasks: ratio to skein: WORSE",
    ]


def test_what_there_is_no_run_of_is_not_kept(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    kept, newest = folders
    run(small()).write(newest)
    assert called(monkeypatch, newest, "--keep", "scale") == 1
    assert not kept.exists()


def test_nothing_kept_is_no_success(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as ended:
        called(monkeypatch, folders[1])
    assert ended.value.code == 2
