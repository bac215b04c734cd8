"""What a save of a training says of itself, and which of two is later."""

from __future__ import annotations

import pytest

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol import points, tony_pb2


@pytest.mark.parametrize(
    ("one", "other", "later"),
    [
        (ResumePoint(2, ""), ResumePoint(1, ""), True),
        (ResumePoint(1, ""), ResumePoint(2, ""), False),
        (ResumePoint(1, ""), ResumePoint(1, ""), None),
        (ResumePoint(None, "", 2), ResumePoint(1, "", 1), None),
        (ResumePoint(2, "", reported=True), ResumePoint(1, ""), None),
    ],
)
def test_steps_tell_which_is_later_where_they_count_the_same(
    one: ResumePoint, other: ResumePoint, later: bool | None
) -> None:
    assert one.is_later_step(other) is later


@pytest.mark.parametrize("step", [None, 0, 7])
def test_what_an_executor_has_uploaded_is_a_resume_point(step: int | None) -> None:
    message = tony_pb2.CheckpointUploaded(step=step, uri="hdfs://n/c", save=3, saved_ms=50_592_000, reported=True)
    point = points.of_uploaded(message)
    assert point == ResumePoint(step, "hdfs://n/c", 3, 50_592_000, reported=True)
    assert point.label == ("save 3, 14:03:12 UTC" if step is None else f"step {step}")
