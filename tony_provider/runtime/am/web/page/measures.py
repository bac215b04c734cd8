"""What containers use beside memory and processors, as the page shows it: a column each, where it is measured."""

from __future__ import annotations

from typing import Callable

import attrs

from tony_provider.runtime.quantities import size


@attrs.frozen
class Measure:
    """A figure of ``ContainerUse``, and how people read it."""

    title: str  # of its column
    field: str
    write: Callable[[float], str]


def percentage(value: float) -> str:
    """Of one processor, or one GPU."""
    return f"{value:.0f} %"


def _rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


MEASURES = (
    Measure("GPU", "gpu_percent", percentage),
    Measure("GPU memory", "gpu_bytes", size),
    Measure("Disk read", "read_rate", _rate),
    Measure("Disk written", "written_rate", _rate),
    Measure("Received", "received_rate", _rate),
    Measure("Sent", "sent_rate", _rate),
)
