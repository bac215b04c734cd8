"""Numbers, sizes and times as the page writes them."""

from __future__ import annotations

from tony_provider.runtime.clock import moment as moment
from tony_provider.runtime.clock import span as span

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


def size(count: int) -> str:
    """A number of bytes in words, such as ``1.5 GiB``, ``300 MiB``."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 0 if unit < _UNITS.index("MiB") or amount >= 100 else 1
    return f"{f'{amount:.{digits}f}'.removesuffix('.0')} {_UNITS[unit]}"


def number(value: float) -> str:
    """A number with four digits that count: ``0.3142``, ``1.25e+08``, ``nan``."""
    return f"{value:.4g}"


def speed(steps_per_second: float) -> str:
    """A speed in words, such as ``8.4 steps/s``."""
    return f"{number(steps_per_second)} steps/s"


def steps(done: int, total: int) -> str:
    """Steps in words, such as ``120 of 900``; a total of 0 is not known."""
    return f"{done:,} of {total:,}" if total else f"{done:,}"
