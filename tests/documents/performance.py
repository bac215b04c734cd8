"""The tables and plots of docs/performance.md, made of the runs that are kept in benchmarks/kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import plots
from benchmarks.check import KEPT
from benchmarks.report import RATIO_HEADS, Figure, Report, by_name, number, ratio_row, read, read_all, spread

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PLOTS = PAGE.parent / "_static" / "performance"


def tables(name: str) -> str:
    """What is kept of a benchmark: when and on what, its ratios, its plot, its figures."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        return "No run of this benchmark is kept yet.\n"
    run = read(path)
    report = run.report
    parts = [f"{run.date}, {run.machine}. {report.title}."]
    if report.ratios:
        parts.append(_table([RATIO_HEADS, *map(ratio_row, report.ratios)]))
    parts.append(f"![Plot of the benchmark {name}: its figures are in the table below](_static/performance/{name}.svg)")
    parts.append(_table(list(_beside_each_other(report))))
    return "\n\n".join(parts) + "\n"


def draw() -> None:
    """The plots of all runs that are kept."""
    for run in read_all(KEPT).values():
        plots.write(run.report, PLOTS)


def _beside_each_other(report: Report) -> Iterator[list[str]]:
    """A row for each thing that was measured, a column for each of those that it was measured of."""
    whose = list(dict.fromkeys(figure.who for figure in report.figures))
    by = by_name(report.figures)
    yield ["median (range)", *whose]
    for name in dict.fromkeys(figure.name for figure in report.figures):
        found = [by.get((name, who)) for who in whose]
        unit = next(figure.unit for figure in found if figure)
        yield [f"{name} ({unit})", *(_cell(figure) if figure else "" for figure in found)]


def _cell(figure: Figure) -> str:
    values = spread(figure.values)
    return number(figure.median) + (f" ({values})" if values else "")


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *others])
