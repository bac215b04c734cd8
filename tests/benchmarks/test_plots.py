"""A plot for each report."""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import attrs
from hypothesis import given, settings

from benchmarks import plots
from benchmarks.report import OURS, Figure, Report
from tests.benchmarks.reports import reports, small


def texts(path: Path) -> set[str]:
    return {"".join(each.itertext()).strip() for each in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}


def test_what_was_measured_at_two_sizes_is_a_line_for_each_of_those_compared(tmp_path: Path) -> None:
    alone = Figure("memory", OURS, "MiB", [1.0])
    path = plots.write(attrs.evolve(small(), figures=[*small().figures, alone]), tmp_path)
    assert path.name == "launch.svg"
    assert {"first", "tasks", "s", "1", "2", OURS, "skein"} <= texts(path)
    assert "memory" not in texts(path)


def test_without_sizes_there_are_bars(tmp_path: Path) -> None:
    figures = [Figure("killed", who, "s", [1.0, 2.0]) for who in (OURS, "skein")]
    assert {f"killed: {OURS}", "killed: skein", "s"} <= texts(plots.write(Report("recovery", "", figures), tmp_path))


def test_the_same_figures_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (plots.write(small(), tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second


@settings(max_examples=15, deadline=None)
@given(reports)
def test_there_is_one_of_every_report(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        ET.parse(plots.write(report, Path(name)))
