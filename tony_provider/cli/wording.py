"""Amounts and times as people read and write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from tony_provider.runtime.clock import span as span
from tony_provider.runtime.spec.units import UnitError, parse_duration

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Such as ``1.5 MiB``."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def since(epoch_ms: int) -> str:
    """How long ago."""
    return span(time.time() - epoch_ms / 1000)


def moment(epoch_ms: int | None) -> str:
    """In UTC; empty when there is none."""
    if not epoch_ms:
        return ""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds_of(option: str, text: str) -> float:
    """Of ``30d``, ``12h``, ``90s``. Exits with a message for what is none."""
    try:
        return float(parse_duration(text))
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error
