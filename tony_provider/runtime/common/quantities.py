"""Resource names and amounts of YARN, and texts for durations, sizes, amounts and progress.

For the names see org.apache.hadoop.yarn.api.records.ResourceInformation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Optional, Union

import attrs

MEMORY = "memory-mb"  # MiB
VCORES = "vcores"
GPU = "yarn.io/gpu"

# Prefixes of YARN's UnitsConversionUtil; they apply to any resource.
UNITS: dict[str, Fraction] = {
    **{unit: Fraction(1, 1000**power) for power, unit in ((4, "p"), (3, "n"), (2, "u"), (1, "m"))},
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}


_PLAIN = re.compile(r"([0-9]{1,19})([A-Za-z]{1,2})")


@attrs.frozen
class ResourceAmount:
    """Amount of a resource: ``10Gi``, or a plain number in the unit in which the cluster counts the resource."""

    value: int
    units: str = ""  # one of UNITS; empty: the unit of the resource on this cluster

    def counted_in(self, units: str) -> int:
        """Return the amount in ``units``, in which the cluster counts the resource, rounded up to an integer."""
        return math.ceil(self._exactly(units))

    def is_whole_in(self, units: str) -> bool:
        """Return whether the amount is an integer in these units. YARN would round a fraction down."""
        return self._exactly(units).denominator == 1

    def _exactly(self, units: str) -> Fraction:
        return self.value * UNITS[self.units] / UNITS[units] if self.units else Fraction(self.value)

    @property
    def plain(self) -> Union[int, str]:
        """The amount as a job specifies it."""
        return f"{self.value}{self.units}" if self.units else self.value

    @classmethod
    def from_plain(cls, value: object) -> ResourceAmount:
        """Parse an amount in the form of ``plain``. Raises TypeError."""
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        match = _PLAIN.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[2] not in UNITS:
            raise TypeError("expected an amount of a resource")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return str(self.plain)


_DURATIONS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_LONG_FORECAST = 600.0  # seconds; longer forecasts are in minutes, since no forecast is precise to the second
_LONGEST_FORECAST = 365 * 86400.0  # seconds
_ROUNDING = 1e-9  # 100 * 0.29 is a little less than 29
_NOUNS = {VCORES: "vcore", GPU: "GPU"}


def span(seconds: float) -> str:
    """Format a duration by its largest unit and the next one: ``2 h 5 min``, ``12 s``; ``1 h`` for 3605 seconds."""
    left = max(0, round(seconds))
    for at, (length, unit) in enumerate(_DURATIONS):
        if left >= length:
            whole, rest = divmod(left, length)
            smaller, name = _DURATIONS[min(at + 1, len(_DURATIONS) - 1)]
            more = f" {rest // smaller} {name}" if rest >= smaller else ""
            return f"{whole} {unit}{more}"
    return "0 s"


def size(count: float) -> str:
    """Format a number of bytes: ``512 B``, ``1.5 GiB``, ``300 MiB``."""
    left, unit = float(count), 0
    while round(left) >= _STEP and unit < len(_SIZES) - 1:
        left, unit = left / _STEP, unit + 1
    digits = 0 if unit == 0 or left >= 100 else 1
    return f"{f'{left:.{digits}f}'.removesuffix('.0')} {_SIZES[unit]}"


def amount(resource: str, number: int, units: str = "") -> str:
    """Format an amount of the resource that YARN calls ``resource``: ``8192 MiB``, ``1 vcore``, ``2 GPUs``.

    ``units`` are YARN's, for resources that are not counted one by one: ``10Gi bandwidth``.
    """
    if resource == MEMORY:
        return f"{number} MiB"  # the unit of the job specification, for comparison
    noun = _NOUNS.get(resource)
    return count(number, noun) if noun else f"{number}{units} {resource}"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 task``, ``3 tasks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Iterable[str], most: int = 5) -> str:
    """List the first ``most`` names, and how many more there are."""
    every = list(names)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def number(value: float) -> str:
    """Format a number with four significant digits: ``0.3142``, ``1.25e+08``, ``nan``."""
    return f"{value:.4g}"


def speed(steps_per_second: float) -> str:
    """Format a speed: ``8.4 steps/s``."""
    return f"{number(steps_per_second)} steps/s"


def steps(done: int, total: Optional[int] = None) -> str:
    """Format progress: ``120 of 900``, or ``120`` if the total is unknown."""
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def steps_and_percent(done: int, total: Optional[int]) -> str:
    """Format progress: ``120 of 900 (13 %)``, or ``120`` if the total is unknown."""
    return f"{steps(done, total)} ({percent(done / total)})" if total else steps(done)


def left(done: Optional[int], total: Optional[int], steps_per_second: Optional[float]) -> str:
    """Format the remaining time: ``about 12 min left``. Return an empty string if it is unknown."""
    if done is None or not total or not steps_per_second or not steps_per_second > 0:
        return ""
    seconds = (total - done) / steps_per_second
    if not 0 < seconds <= _LONGEST_FORECAST:
        return ""
    return f"about {span(60 * round(seconds / 60) if seconds >= _LONG_FORECAST else seconds)} left"


def percent(fraction: float) -> str:
    """Format a fraction as a percentage, rounded down: ``99 %`` until the work is complete."""
    return f"{math.floor(100 * fraction + _ROUNDING)} %"
