"""A sample of a task: one line of the series that an application keeps."""

from __future__ import annotations

from typing import ClassVar, Optional

import attrs


@attrs.frozen(kw_only=True)
class TaskSample:
    """What a task did during some seconds. What was not measured, or not reported, is None."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    time_ms: int  # epoch, the end of these seconds
    seconds: float
    task: str  # such as worker:0
    attempt: int = 1  # its container, counted from 1
    generation: int = 0
    rss_bytes: Optional[int] = None  # the most
    cpu_percent: Optional[float] = None  # mean; 100 is one core
    read_bytes: Optional[int] = None  # from disks, in these seconds; so the next three
    written_bytes: Optional[int] = None
    received_bytes: Optional[int] = None  # by network, where that can be told for the container
    sent_bytes: Optional[int] = None
    gpu_percent: Optional[float] = None  # mean over its GPUs; 100 is one of them, busy all the time
    gpu_bytes: Optional[int] = None  # the most, of all its GPUs together
    step: Optional[int] = None  # newest; so the rest
    steps_per_second: Optional[float] = None
    metrics: dict[str, float] = attrs.field(factory=dict)
