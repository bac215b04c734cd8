"""Numbers, sizes and times as the page writes them."""

from __future__ import annotations

from datetime import datetime, timezone

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_LAST_YEAR = 253_402_300_799_000  # ms; the end of the year 9999, after which Python has no dates


def size(count: int) -> str:
    """Bytes, such as ``1.5 GiB``, ``300 MiB``."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 0 if unit < _UNITS.index("MiB") or amount >= 100 else 1
    return f"{f'{amount:.{digits}f}'.removesuffix('.0')} {_UNITS[unit]}"


def span(seconds: float) -> str:
    """The two largest units: ``2 h 5 min``, ``12 s``."""
    left = max(0, round(seconds))
    for at, (length, unit) in enumerate(_SPANS):
        if left >= length:
            whole, rest = divmod(left, length)
            smaller, name = _SPANS[min(at + 1, len(_SPANS) - 1)]
            more = f" {rest // smaller} {name}" if rest >= smaller else ""
            return f"{whole} {unit}{more}"
    return "0 s"


def moment(epoch_ms: int) -> str:
    """In UTC, which nobody mistakes for a time of their own."""
    at = datetime.fromtimestamp(min(max(0, epoch_ms), _LAST_YEAR) / 1000, timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: float) -> str:
    """Four digits that count: ``0.3142``, ``1.25e+08``, ``nan``."""
    return f"{value:.4g}"


def speed(steps_per_second: float) -> str:
    return f"{number(steps_per_second)} steps/s"


def steps(done: int, total: int) -> str:
    """``120 of 900``; a total of 0 is not known."""
    return f"{done:,} of {total:,}" if total else f"{done:,}"
