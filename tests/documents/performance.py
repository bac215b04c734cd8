"""Tables and charts of benchmarks/RESULTS.md, generated from the runs that are kept in benchmarks/kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import plots
from benchmarks.check import KEPT
from benchmarks.report import RATIO_HEADS, Figure, Report, by_name, number, ratio_row, read, read_all, spread

PAGE = KEPT.parent / "RESULTS.md"
CHARTS = KEPT.parent / "charts"


def tables(name: str) -> str:
    """Return the date, machine, ratios, chart and figures of the kept run of a benchmark, as Markdown."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        return "No run of this benchmark is kept yet.\n"
    run = read(path)
    report = run.report
    parts = [f"{run.date}, {run.machine}. {report.title}."]
    if report.ratios:
        parts.append(_table([RATIO_HEADS, *map(ratio_row, report.ratios)]))
    parts.append(f"![Chart of the benchmark {name}: the table below has its figures]({CHARTS.name}/{name}.svg)")
    parts.append(_table(list(_by_system(report))))
    return "\n\n".join(parts) + "\n"


def draw() -> None:
    """Draw the charts of all kept runs."""
    for run in read_all(KEPT).values():
        plots.write(run.report, CHARTS)


def _by_system(report: Report) -> Iterator[list[str]]:
    """Yield the rows of a table with a row for each measurement and a column for each measured system."""
    systems = list(dict.fromkeys(figure.who for figure in report.figures))
    by = by_name(report.figures)
    yield ["median (range)", *systems]
    for name in dict.fromkeys(figure.name for figure in report.figures):
        found = [by.get((name, system)) for system in systems]
        unit = next(figure.unit for figure in found if figure)
        yield [f"{name} ({unit})", *(_cell(figure) if figure else "" for figure in found)]


def _cell(figure: Figure) -> str:
    values = spread(figure.values)
    return number(figure.median) + (f" ({values})" if values else "")


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *others])
