"""Names of runs, by the directories of their event files."""

from __future__ import annotations

import pytest

from tony_provider.runtime.executor.progress import run_name


@pytest.mark.parametrize(
    ("directory", "run"),
    [
        ("", ""),
        ("train", "train"),
        ("20260105-093000/train", "train"),  # TensorFlow's examples
        ("fit/20260105-093000/validation", "fit/validation"),
        ("Jan05_09-30-00_node7.example.com", ""),  # PyTorch's SummaryWriter
        ("2026-01-05T09:30:00", ""),
        ("2026-01-05_09-30/eval", "eval"),
        ("trial-20260105", "trial-20260105"),
        ("00000000-000001", "00000000-000001"),  # counts, and is no time
        ("lr-0.001/seed-42", "lr-0.001/seed-42"),
    ],
)
def test_a_directory_named_after_the_time_is_no_part_of_the_name(directory: str, run: str) -> None:
    assert run_name(directory) == run
