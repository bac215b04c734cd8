"""What the container of a task uses at present, beside memory and processors."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.session.state.task import Heartbeat


@attrs.frozen
class Counters:
    """Of a container, in bytes since its executor began. None: cannot be told."""

    read: Optional[int] = None
    written: Optional[int] = None
    received: Optional[int] = None
    sent: Optional[int] = None

    @classmethod
    def of(cls, beat: Heartbeat) -> Counters:
        return cls(beat.read_bytes, beat.written_bytes, beat.received_bytes, beat.sent_bytes)


@attrs.frozen(kw_only=True)
class ContainerUse:
    """By its newest heartbeat. Rates are bytes per second since the one before. What cannot be told is None."""

    gpu_percent: Optional[float] = None  # mean over its GPUs; 100 is one of them, busy all the time
    gpu_bytes: Optional[int] = None  # of all its GPUs together
    read_rate: Optional[float] = None  # from disks
    written_rate: Optional[float] = None
    received_rate: Optional[float] = None  # by network, where the container has one of its own
    sent_rate: Optional[float] = None

    @classmethod
    def of(cls, beat: Heartbeat, before: Optional[Counters], seconds: float) -> ContainerUse:
        """``before``: so many seconds ago; None: this is the first heartbeat, after a time of unknown length."""
        before, now = before or Counters(), Counters.of(beat)
        return cls(
            gpu_percent=beat.gpu_percent,
            gpu_bytes=beat.gpu_bytes,
            read_rate=_rate(before.read, now.read, seconds),
            written_rate=_rate(before.written, now.written, seconds),
            received_rate=_rate(before.received, now.received, seconds),
            sent_rate=_rate(before.sent, now.sent, seconds),
        )


def more(before: Optional[int], now: Optional[int]) -> Optional[int]:
    """What a counter has counted in between. None: cannot be told."""
    return None if before is None or now is None else max(0, now - before)


def _rate(before: Optional[int], now: Optional[int], seconds: float) -> Optional[float]:
    counted = more(before, now)
    return None if counted is None or seconds <= 0 else counted / seconds
