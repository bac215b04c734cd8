"""What a benchmark has found: figures by who was measured, ratios beside aims; as tables and as JSON.

Who is compared is measured in turns, in rounds: the first value of each belongs to the first round, and so on. A ratio
is one for each round, so that what slows a whole round down (another program, a warm disk) is in both of its sides.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import attrs
import cattrs

from benchmarks.machine import Machine
from tests.columns import columns

OURS = "tony_provider"


@attrs.frozen
class Size:
    """How large that was which was measured: where its figures stand in a plot of how they grow."""

    value: int
    of: str  # "tasks", "files", "jobs"

    def __str__(self) -> str:
        return f"{self.value:,} {self.of}"


@attrs.frozen
class Figure:
    """One thing that was measured of one of those that are compared."""

    what: str  # "first user process"
    who: str  # "tony_provider", "skein", "floor"
    unit: str  # "s", "MiB", "calls", "MiB/s"
    values: list[float]  # one for each round
    size: Size | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def name(self) -> str:
        """With its size, where it has one: "first user process, 2 tasks"."""
        return self.what if self.size is None else f"{self.what}, {self.size}"


class Better(Enum):
    """Which way a ratio or a figure is better."""

    LESS = "at most"
    MORE = "at least"


@attrs.frozen
class Aim:
    """What a ratio, or a figure of ours, should be."""

    value: float
    better: Better = Better.LESS

    def holds(self, value: float) -> bool:
        return value <= self.value if self.better is Better.LESS else value >= self.value

    def __str__(self) -> str:
        return f"{self.better.value} {self.value:g}"


@attrs.frozen
class Ratio:
    """One figure of ours beside the same of another, round by round; without another, the figure itself."""

    what: str
    of: str  # who; "" for a figure that stands alone
    values: list[float]  # one for each round
    aim: Aim | None = None
    unit: str = ""  # of a figure that stands alone
    better: Better = attrs.field()

    @better.default
    def _as_aimed_at(self) -> Better:
        return Better.LESS if self.aim is None else self.aim.better

    @classmethod
    def between(cls, ours: Figure, other: Figure, aim: Aim | None = None) -> Ratio:
        """One of which more is better needs an aim that says so."""
        values = [mine / theirs for mine, theirs in zip(ours.values, other.values, strict=True)]
        return cls(ours.name, other.who, values, aim)

    @classmethod
    def alone(cls, ours: Figure, aim: Aim | None = None) -> Ratio:
        """A figure that is held to an aim of its own, or to what it was before."""
        return cls(ours.name, "", ours.values, aim, ours.unit)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """None without an aim."""
        return None if self.aim is None else self.aim.holds(self.median)

    @property
    def name(self) -> str:
        return f"{self.what}: ratio to {self.of}" if self.of else self.what


@attrs.frozen
class Report:
    """Of one benchmark."""

    name: str  # "launch", as its files are called
    title: str  # what was done, on what, how often
    figures: list[Figure]
    ratios: list[Ratio] = attrs.field(factory=list)

    def text(self) -> str:
        """Ratios first."""
        parts = [[self.title]]
        if self.ratios:
            parts.append(columns([RATIO_HEADS, *map(ratio_row, self.ratios)]))
        parts.append(columns([FIGURE_HEADS, *map(figure_row, self.figures)]))
        return "\n\n".join("\n".join(lines) for lines in parts)


def by_name(figures: Sequence[Figure]) -> dict[tuple[str, str], Figure]:
    """By what was measured, with its size, and of whom."""
    return {(figure.name, figure.who): figure for figure in figures}


# -- as files ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Run:
    """A report, and when and on what it was made: what a benchmark leaves, and what is kept in the repository."""

    date: str  # 2026-11-25, of UTC
    machine: Machine
    report: Report

    @classmethod
    def here(cls, report: Report) -> Run:
        """One that has just ended."""
        return cls(datetime.now(UTC).date().isoformat(), Machine.this(), report)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.report.name}.json"
        path.write_text(json.dumps(_CONVERTER.unstructure(self), indent=1) + "\n")
        return path


def read(path: Path) -> Run:
    return _CONVERTER.structure(json.loads(path.read_text()), Run)


def read_all(directory: Path) -> dict[str, Run]:
    """By the name of the benchmark."""
    return {path.stem: read(path) for path in sorted(directory.glob("*.json"))}


_CONVERTER = cattrs.Converter(forbid_extra_keys=True, omit_if_default=True)
_CONVERTER.register_unstructure_hook(float, lambda value: float(f"{value:.5g}"))  # what is kept is read by people


# -- as text -----------------------------------------------------------------------------------------------------------

RATIO_HEADS = ["", "median", "range", "aim", ""]
FIGURE_HEADS = ["", "", "median", "range", "unit"]


def ratio_row(ratio: Ratio) -> list[str]:
    said = {None: "", True: "holds", False: "MISSED"}[ratio.holds]
    aim = "" if ratio.aim is None else str(ratio.aim)
    return [ratio.name, f"{number(ratio.median)} {ratio.unit}".rstrip(), spread(ratio.values), aim, said]


def figure_row(figure: Figure) -> list[str]:
    return [figure.name, figure.who, number(figure.median), spread(figure.values), figure.unit]


def spread(values: Sequence[float]) -> str:
    """From the least to the most; nothing of a single one."""
    return f"{number(min(values))} - {number(max(values))}" if len(values) > 1 else ""


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
