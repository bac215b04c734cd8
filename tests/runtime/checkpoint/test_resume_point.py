"""Resume points: their labels, their order by steps, and their messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import commit
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol import messages
from tony_provider.runtime.storage import LocalStorage


@pytest.mark.parametrize(
    ("step", "label"),
    [
        (None, "snapshot 3 (saved 14:03:12 UTC)"),
        (0, "snapshot 3 (step 0, saved 14:03:12 UTC)"),
        (7, "snapshot 3 (step 7, saved 14:03:12 UTC)"),
    ],
)
def test_a_message_carries_the_whole_resume_point(step: int | None, label: str) -> None:
    point = ResumePoint(step, "hdfs://n/c", 3, 50_592_000, "crc32:00000001", reported=True, reported_step=9)
    sent = messages.resume_message(point)
    assert sent is not None
    assert messages.resume_point_of(sent) == point
    assert point.label == label
    assert messages.resume_message(None) is None


def test_the_resume_point_of_a_stored_checkpoint_has_the_checksum_of_its_manifest(
    tmp_path: Path,
) -> None:
    stored = commit(LocalStorage(), f"file://{tmp_path}", None, save=4, saved_ms=9, reported=True)
    assert stored.point == ResumePoint(None, stored.uri, 4, 9, stored.checksum, True, files=1, size=7)


@pytest.mark.parametrize(
    ("point", "first_step", "differs"),
    [
        (ResumePoint(None, "", reported_step=40), 1, False),
        (ResumePoint(40, "", reported_step=42), 41, False),
        (ResumePoint(40, "", reported_step=42), 40, False),
        (ResumePoint(40, "", reported_step=42), 39, True),
        (ResumePoint(40, "", reported_step=30), 10, True),  # it reports each tenth step, and saves in between
        (ResumePoint(1200, "", reported_step=3), 4, False),  # its files count batches, its reports epochs
        (ResumePoint(40, ""), 1, False),
        (ResumePoint(47, "", reported=True, reported_step=47), 41, False),  # it went on while the snapshot was taken
        (ResumePoint(47, "", reported=True, reported_step=47), 1, True),
    ],
)
def test_a_program_that_begins_anew_has_not_resumed(point: ResumePoint, first_step: int, differs: bool) -> None:
    assert point.was_not_loaded(first_step) is differs


def test_the_extent_of_a_checkpoint_for_people() -> None:
    point = ResumePoint(40, "hdfs://n/c", 12, files=42, size=3 << 30, sent=120 << 20)
    assert point.description == "snapshot 12 (step 40): 3 GiB in 42 files, 120 MiB new"
    assert ResumePoint(40, "hdfs://n/c", 12).description == "snapshot 12 (step 40)"
