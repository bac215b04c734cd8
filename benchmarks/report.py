"""What a benchmark has found: figures by who was measured, ratios beside aims; as a table and as JSON.

Who is compared is measured in turns, in rounds: the first value of each belongs to the first round, and so on. A ratio
is one for each round, so that what slows a whole round down (another program, a warm disk) is in both of its sides.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import cattrs

from tests.columns import columns

OURS = "tony_provider"
OUTPUT = Path(__file__).resolve().parents[1] / "test-output" / "bench"


@attrs.frozen
class Figure:
    """One thing that was measured of one of those that are compared."""

    what: str  # "first user process, 2 tasks"
    who: str  # "tony_provider", "skein", "floor"
    unit: str  # "s", "MiB", "calls", "MiB/s"
    values: list[float]  # one for each round
    x: float | None = None  # where it stands in a plot of how it grows: tasks, files, jobs

    @property
    def median(self) -> float:
        return statistics.median(self.values)


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

    @classmethod
    def between(cls, ours: Figure, other: Figure, aim: Aim | None = None) -> Ratio:
        values = [mine / theirs for mine, theirs in zip(ours.values, other.values, strict=True)]
        return cls(ours.what, other.who, values, aim)

    @classmethod
    def alone(cls, ours: Figure, aim: Aim) -> Ratio:
        """A figure with an aim of its own."""
        return cls(ours.what, "", ours.values, aim, ours.unit)

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
            parts.append(columns([["", "median", "range", "aim", ""], *map(_ratio_row, self.ratios)]))
        rows = [[f.what, f.who, _number(f.median), _range(f.values), f.unit] for f in self.figures]
        parts.append(columns([["", "", "median", "range", ""], *rows]))
        return "\n\n".join("\n".join(lines) for lines in parts)

    def write(self, directory: Path = OUTPUT) -> Path:
        """As JSON, for the plots and for what is compared before a release."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        path.write_text(json.dumps({"machine": machine(), **cattrs.unstructure(self)}, indent=1) + "\n")
        return path


def by_name(figures: Sequence[Figure]) -> dict[tuple[str, str], Figure]:
    """By what was measured, and of whom."""
    return {(figure.what, figure.who): figure for figure in figures}


def read(path: Path) -> Report:
    return cattrs.structure(json.loads(path.read_text()), Report)


def machine() -> dict[str, Any]:
    """What a figure without a ratio depends on."""
    model = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")]
    return {
        "processors": os.cpu_count(),
        "model": model[0] if model else "",
        "memory_gib": round(int(memory[0]) / (1 << 20)) if memory else None,
        "kernel": os.uname().release,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _ratio_row(ratio: Ratio) -> list[str]:
    said = {None: "", True: "holds", False: "MISSED"}[ratio.holds]
    aim = "" if ratio.aim is None else str(ratio.aim)
    return [ratio.name, f"{_number(ratio.median)} {ratio.unit}".rstrip(), _range(ratio.values), aim, said]


def _range(values: Sequence[float]) -> str:
    return f"{_number(min(values))} - {_number(max(values))}" if len(values) > 1 else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
