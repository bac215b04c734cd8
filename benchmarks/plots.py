"""A plot of a report: how its figures grow with their sizes, or, where they have none, bars beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from benchmarks.report import OURS, Figure, Report

_ACROSS = 3  # panels
_PANEL = (4.2, 3.2)  # inches
_WIDE, _BAR = 9.0, 0.28  # inches: of a panel of bars, and for each of them
_OURS_COLOUR = "#0b6e99"
_COLOURS = ("#c44536", "#6b8f3c", "#8d6a9f", "#c98a1b", "#5f6b6d")  # of the others, in their order
# The same figures give the same bytes; letters are letters, which can be searched and are small.
_STYLE: Any = {"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9}


def write(report: Report, directory: Path) -> Path:
    """The report's SVG."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{report.name}.svg"
    growing = _growing(report.figures)
    with mpl.rc_context(_STYLE):
        drawing = _grown(growing) if growing else _beside_each_other(report.figures)
        drawing.savefig(path, format="svg", metadata={"Date": None})
    return path


def _grown(panels: Mapping[str, Sequence[Figure]]) -> Drawing:
    across = min(_ACROSS, len(panels))
    down = -(-len(panels) // across)
    drawing = Drawing(figsize=(across * _PANEL[0], down * _PANEL[1]), layout="constrained")
    places = list(drawing.subplots(down, across, squeeze=False).flat)
    for axes, (what, figures) in zip(places, panels.items(), strict=False):
        _lines(axes, figures)
        axes.set_title(what)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return drawing


def _beside_each_other(figures: Sequence[Figure]) -> Drawing:
    """A panel for each unit."""
    units: dict[str, list[Figure]] = {}
    for figure in figures:
        units.setdefault(figure.unit, []).append(figure)
    heights = [1 + _BAR * len(each) for each in units.values()] or [1.0]
    drawing = Drawing(figsize=(_WIDE, sum(heights)), layout="constrained")
    places = drawing.subplots(len(heights), 1, squeeze=False, height_ratios=heights).flat
    for axes, each in zip(places, units.values(), strict=False):
        _bars(axes, each)
    return drawing


def _growing(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """What grows: measured at two sizes at least."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.what, []).append(figure)
    return {what: each for what, each in found.items() if len({figure.size for figure in each} - {None}) > 1}


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
    axes.set_ylim(0, 1.08 * max(max(figure.values) for figure in figures) or None)
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
