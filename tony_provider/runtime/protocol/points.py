"""Resume points in the messages between master and executors."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol import tony_pb2


def of_message(message: tony_pb2.Resume) -> ResumePoint:
    """The resume point that a message carries."""
    step = message.step if message.HasField("step") else None
    reported_step = message.reported_step if message.HasField("reported_step") else None
    return ResumePoint(
        step, message.uri, message.save, message.saved_ms, message.checksum, message.reported, reported_step
    )


def message(point: Optional[ResumePoint]) -> Optional[tony_pb2.Resume]:
    """The message for a resume point; None for none."""
    if point is None:
        return None
    return tony_pb2.Resume(
        step=point.step,
        uri=point.uri,
        save=point.save,
        saved_ms=point.saved_ms,
        checksum=point.checksum,
        reported=point.reported,
        reported_step=point.reported_step,
    )
