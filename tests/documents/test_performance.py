"""benchmarks/RESULTS.md shows the runs in benchmarks/kept, and the page of the documents links to it."""

from __future__ import annotations

from benchmarks.check import KEPT
from benchmarks.every import EVERY
from benchmarks.report import read_all
from tests.documents.made import blocks_of, renewed
from tests.documents.pages import ROOT, links
from tests.documents.performance import CHARTS, PAGE


def test_the_tables_are_those_of_the_kept_runs() -> None:
    page = PAGE.read_text()
    assert page == renewed(page), "`make docs-tables` writes them"


def test_each_benchmark_has_a_section() -> None:
    assert sorted(blocks_of(PAGE.read_text(), "bench")) == sorted(benchmark.name for benchmark in EVERY)


def test_each_kept_run_belongs_to_a_benchmark_and_has_a_chart() -> None:
    kept = read_all(KEPT)
    assert {name: run.report.name for name, run in kept.items()} == {name: name for name in kept}
    assert kept.keys() <= {benchmark.name for benchmark in EVERY}
    assert sorted(path.stem for path in CHARTS.glob("*.svg")) == sorted(kept), "`make docs-tables` draws them"


def test_links_and_charts_of_the_results_exist() -> None:
    assert [link for link in links(PAGE) if not (PAGE.parent / link).exists()] == []


def test_the_users_page_has_no_tables_of_figures_but_links_to_them() -> None:
    page = ROOT / "docs" / "explanation" / "performance.md"
    assert blocks_of(page.read_text(), "bench") == []
    assert [link for link in links(page) if (page.parent / link).resolve() == PAGE]
