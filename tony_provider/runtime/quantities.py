"""Durations, sizes, amounts and progress as people read them: in the log, on the command line and on the page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.resource_names import GPU, MEMORY, VCORES

_DURATIONS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_LONG_FORECAST = 600.0  # seconds; told in minutes, since no forecast is right to the second
_LONGEST_FORECAST = 365 * 86400.0  # seconds
_ROUNDING = 1e-9  # 100 * 0.29 is a little less than 29
_NOUNS = {VCORES: "vcore", GPU: "GPU"}


def span(seconds: float) -> str:
    """A duration by its largest unit and the one below that: ``2 h 5 min``, ``12 s``; ``1 h`` for 3605 seconds."""
    left = max(0, round(seconds))
    for at, (length, unit) in enumerate(_DURATIONS):
        if left >= length:
            whole, rest = divmod(left, length)
            smaller, name = _DURATIONS[min(at + 1, len(_DURATIONS) - 1)]
            more = f" {rest // smaller} {name}" if rest >= smaller else ""
            return f"{whole} {unit}{more}"
    return "0 s"


def size(count: float) -> str:
    """Bytes: ``512 B``, ``1.5 GiB``, ``300 MiB``."""
    left, unit = float(count), 0
    while round(left) >= _STEP and unit < len(_SIZES) - 1:
        left, unit = left / _STEP, unit + 1
    digits = 0 if unit == 0 or left >= 100 else 1
    return f"{f'{left:.{digits}f}'.removesuffix('.0')} {_SIZES[unit]}"


def amount(resource: str, number: int, units: str = "") -> str:
    """What a container is given of a resource, by YARN's name of that: ``8192 MiB``, ``1 vcore``, ``2 GPUs``.

    ``units`` are YARN's, for resources that are not counted one by one: ``10Gi bandwidth``.
    """
    if resource == MEMORY:
        return f"{number} MiB"  # as the specification has it, so that the two can be compared
    noun = _NOUNS.get(resource)
    return count(number, noun) if noun else f"{number}{units} {resource}"


def count(number: int, noun: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Iterable[str], most: int = 5) -> str:
    """A list for people: the first few names, and how many more there are."""
    every = list(names)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def number(value: float) -> str:
    """A number with four digits that count: ``0.3142``, ``1.25e+08``, ``nan``."""
    return f"{value:.4g}"


def speed(steps_per_second: float) -> str:
    """``8.4 steps/s``"""
    return f"{number(steps_per_second)} steps/s"


def steps(done: int, total: Optional[int] = None) -> str:
    """``120 of 900``, or ``120`` where the total is not known."""
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def left(done: Optional[int], total: Optional[int], steps_per_second: Optional[float]) -> str:
    """``about 12 min left``; empty where nobody can tell."""
    if done is None or not total or not steps_per_second or not steps_per_second > 0:
        return ""
    seconds = (total - done) / steps_per_second
    if not 0 < seconds <= _LONGEST_FORECAST:
        return ""
    return f"about {span(60 * round(seconds / 60) if seconds >= _LONG_FORECAST else seconds)} left"


def percent(fraction: float) -> str:
    """Never more than there is: ``99 %`` until all is done."""
    return f"{math.floor(100 * fraction + _ROUNDING)} %"
