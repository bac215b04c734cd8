"""What containers use beside memory and processors, as the page shows it: a column each, where it is measured."""

from __future__ import annotations

from typing import Callable

import attrs

from tony_provider.runtime.quantities import size


@attrs.frozen
class Measure:
    """A figure of ``ContainerUse``, and how people read it."""

    title: str  # of its column
    name: str  # in words
    field: str
    write: Callable[[float], str]


def percentage(value: float) -> str:
    """Of one processor, or one GPU."""
    return f"{value:.0f} %"


def _rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


MEASURES = (
    Measure("GPU", "Use of the GPUs", "gpu_percent", percentage),
    Measure("GPU mem.", "Memory of the GPUs", "gpu_bytes", size),
    Measure("Read", "Reading from disks", "read_rate", _rate),
    Measure("Written", "Writing to disks", "written_rate", _rate),
    Measure("Received", "Receiving by network", "received_rate", _rate),
    Measure("Sent", "Sending by network", "sent_rate", _rate),
)
