"""docs/performance.md says what the runs in benchmarks/kept have found, and nothing else."""

from __future__ import annotations

from benchmarks.check import KEPT
from benchmarks.every import EVERY
from benchmarks.report import read_all
from tests.documents.made import blocks_of, renewed
from tests.documents.performance import PAGE, PLOTS


def test_its_tables_are_those_of_the_runs_that_are_kept() -> None:
    page = PAGE.read_text()
    assert page == renewed(page), "make docs-tables writes them anew"


def test_each_benchmark_has_its_place_there() -> None:
    assert sorted(blocks_of(PAGE.read_text(), "bench")) == sorted(benchmark.name for benchmark in EVERY)


def test_what_is_kept_is_of_a_benchmark_and_has_a_plot() -> None:
    kept = read_all(KEPT)
    assert {name: run.report.name for name, run in kept.items()} == {name: name for name in kept}
    assert kept.keys() <= {benchmark.name for benchmark in EVERY}
    assert sorted(path.stem for path in PLOTS.glob("*.svg")) == sorted(kept), "make docs-tables draws them anew"
