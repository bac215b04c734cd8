"""A plot of a report: how its figures grow with their sizes, or, where they have none, bars beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from benchmarks.report import OURS, Figure, Report

_ACROSS = 3  # panels
_PANEL = (4.2, 3.2)  # inches
_OURS_COLOUR = "#0b6e99"
_COLOURS = ("#c44536", "#6b8f3c", "#8d6a9f", "#c98a1b", "#5f6b6d")  # of the others, in their order
# The same figures give the same bytes; letters are letters, which can be searched and are small.
_STYLE: Any = {"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9}


def write(report: Report, directory: Path) -> Path:
    """The report's SVG."""
    panels = _panels(report.figures)
    draw = _lines if panels else _bars
    panels = panels or _by_unit(report.figures)
    across = min(_ACROSS, max(1, len(panels)))
    down = max(1, -(-len(panels) // across))
    with mpl.rc_context(_STYLE):
        drawing = Drawing(figsize=(across * _PANEL[0], down * _PANEL[1]), layout="constrained")
        axes = drawing.subplots(down, across, squeeze=False).flat
        for panel, (title, figures) in zip(axes, panels.items(), strict=False):
            draw(panel, figures)
            panel.set_title(title)
        for panel in list(axes)[len(panels) :]:
            panel.set_axis_off()
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{report.name}.svg"
        drawing.savefig(path, format="svg", metadata={"Date": None})
    return path


def _panels(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """What grows: measured at two sizes at least."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.what, []).append(figure)
    return {what: each for what, each in found.items() if len({figure.size for figure in each} - {None}) > 1}


def _by_unit(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.unit, []).append(figure)
    return found


def _lines(axes: Axes, figures: Sequence[Figure]) -> None:
    """Medians, with a bar from the least to the most of the rounds."""
    for who, colour in _colours(figures).items():
        points = sorted(
            ((each.size.value, each) for each in figures if each.who == who and each.size is not None),
            key=lambda point: point[0],
        )
        spreads = [_spread(each) for _, each in points]
        axes.errorbar(
            [x for x, _ in points],
            [each.median for _, each in points],
            yerr=list(zip(*spreads, strict=True)),
            label=who,
            color=colour,
            marker="o",
            markersize=4,
            capsize=2,
        )
    sizes = [figure.size for figure in figures if figure.size is not None]
    axes.set_xscale("log")
    axes.set_xticks(sorted({size.value for size in sizes}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.minorticks_off()
    axes.set_xlabel(sizes[0].of)
    axes.set_ylabel(figures[0].unit)
    axes.set_ylim(bottom=0)
    if len({figure.who for figure in figures}) > 1:
        axes.legend(fontsize=7)


def _bars(axes: Axes, figures: Sequence[Figure]) -> None:
    """The first at the top."""
    colours = _colours(figures)
    labels = [f"{figure.name}: {figure.who}" for figure in figures]
    axes.barh(
        labels,
        [figure.median for figure in figures],
        xerr=list(zip(*map(_spread, figures), strict=True)),
        color=[colours[figure.who] for figure in figures],
        capsize=2,
    )
    axes.invert_yaxis()
    axes.set_xlabel(figures[0].unit)


def _spread(figure: Figure) -> tuple[float, float]:
    """How far the least and the most are from the median."""
    return figure.median - min(figure.values), max(figure.values) - figure.median


def _colours(figures: Sequence[Figure]) -> dict[str, str]:
    """Of whom, ours first."""
    others = sorted({figure.who for figure in figures} - {OURS})
    found = {who: _COLOURS[number % len(_COLOURS)] for number, who in enumerate(others)}
    return ({OURS: _OURS_COLOUR} if any(figure.who == OURS for figure in figures) else {}) | found
