"""Times of day, ages and durations as commands show and read them."""

from __future__ import annotations

import time

from tony_provider.runtime import clock
from tony_provider.runtime.quantities import span
from tony_provider.runtime.spec.units import UnitError, parse_duration


def since(epoch_ms: int) -> str:
    """How long ago."""
    return span(time.time() - epoch_ms / 1000)


def moment(epoch_ms: int | None) -> str:
    """In UTC, which the column's title says; empty when there is none."""
    return clock.moment(epoch_ms).removesuffix(" UTC") if epoch_ms else ""


def seconds_of(option: str, text: str) -> float:
    """The seconds that a duration such as ``30d``, ``12h`` or ``90s`` stands for.

    ``option`` is the command's, for the message with which this exits when ``text`` is no duration.
    """
    try:
        return float(parse_duration(text))
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error
