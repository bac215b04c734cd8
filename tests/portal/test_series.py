"""Samples as columns, whatever their metrics are."""

from __future__ import annotations

import math
from unittest import mock

import pytest

from tony_provider.portal import job_views
from tony_provider.portal.job_views import CUT, end_of_output, sample_columns
from tony_provider.runtime.application_history import TaskSample


def test_of_ten_thousand_metrics_those_that_were_reported_most_often() -> None:
    names = {f"<b>{number}</b>": float(number) for number in range(10_000)}
    samples = [
        TaskSample(time_ms=at, seconds=1.0, task="worker:0", metrics={**names, "loss": math.nan}) for at in range(3)
    ]
    samples.append(TaskSample(time_ms=0, seconds=1.0, task="worker:0", metrics={"loss": math.inf}))
    found, left_out = sample_columns(samples, None, 50)
    metrics = found["worker:0"]["metrics"]
    assert (len(metrics), left_out) == (100, [])
    assert metrics["loss"][-1] == math.inf
    assert found["worker:0"]["time_ms"] == [0, 1, 2, 0]


def test_a_task_that_an_address_names_ten_thousand_times_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 64 KiB of them took five minutes."""
    drawn = mock.Mock(wraps=job_views._columns)
    monkeypatch.setattr(job_views, "_columns", drawn)
    samples = [TaskSample(time_ms=1, seconds=1.0, task=task, metrics={"loss": 0.5}) for task in ("w:0", "w:1", "w:2")]
    found, left_out = sample_columns(samples, ["w:0", "w:1"] * 10_000, 50)
    assert (list(found), left_out) == (["w:0", "w:1"], ["w:2"])
    assert drawn.call_count == 2


def test_a_log_is_shown_as_a_terminal_shows_it() -> None:
    printed = b"begin\n\x1b[1m1/2\x1b[0m \x1b[32m-\x1b[0m\r\x1b[1m2/2\x1b[0m loss: 0.5\nend\n"
    assert end_of_output(printed, 1000) == "begin\n2/2 loss: 0.5\nend\n"
    assert end_of_output(printed[-8:], 7) == CUT + "end\n"
