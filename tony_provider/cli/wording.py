"""Sizes, times and durations as the commands print and read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tony_provider.runtime.clock import span as span
from tony_provider.runtime.spec.units import UnitError, parse_duration

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """A number of bytes in words, such as ``1.5 MiB``."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def since(epoch_ms: int) -> str:
    """How long ago a time was, in words."""
    return span(time.time() - epoch_ms / 1000)


def moment(epoch_ms: int | None) -> str:
    """A time in words, in UTC; empty when there is none."""
    if not epoch_ms:
        return ""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds_of(option: str, text: str) -> float:
    """The seconds that a duration such as ``30d``, ``12h`` or ``90s`` stands for.

    ``option`` is the command's, for the message with which this exits when ``text`` is no duration.
    """
    try:
        return float(parse_duration(text))
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error
