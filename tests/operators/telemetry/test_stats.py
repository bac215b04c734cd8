"""What Airflow's own metrics are told of a try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from tests.operators.statuses import ID
from tests.operators.telemetry.tries import ended
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally
from tony_provider.operators import telemetry
from tony_provider.operators.telemetry import report_stats
from tony_provider.runtime.protocol.status import Failure, FailureKind

TAGS = {"dag_id": "clicks", "task_id": "train", "queue": "ml"}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a backend of Airflow's metrics gets; which one that is, the installation says."""
    found: list[tuple[Any, ...]] = []

    class Backend:
        @staticmethod
        def timing(name: str, took: timedelta, *, tags: dict[str, str]) -> None:
            found.append((name, took.total_seconds(), tags))

        @staticmethod
        def incr(name: str, count: int = 1, *, tags: dict[str, str]) -> None:
            found.append((name, count, tags))

    monkeypatch.setattr(telemetry, "Stats", Backend)
    return found


def test_a_success(told: list[tuple[Any, ...]]) -> None:
    report_stats(ended())
    assert told == [
        ("tony.job.waiting", 15.0, TAGS),
        ("tony.job.training", 60.0, TAGS),
        ("tony.job.total", 100.0, TAGS),
        ("tony.job.succeeded", 1, TAGS),
        ("tony.job.restarts", 2, TAGS),
    ]


@pytest.mark.parametrize(
    ("error", "name", "kind"),
    [
        (
            TonyJobFailed("full", application_id=ID, failure=Failure(FailureKind.OUT_OF_MEMORY, "full")),
            "failed",
            "OUT_OF_MEMORY",
        ),
        (TonyJobFailed("forgotten", application_id=ID), "failed", "TonyJobFailed"),
        (TonyKilledExternally("by yarn", application_id=ID), "killed", "TonyKilledExternally"),
        (AirflowTaskTimeout("too long"), "failed", "AirflowTaskTimeout"),
    ],
)
def test_what_is_not_known_is_not_told(told: list[tuple[Any, ...]], error: BaseException, name: str, kind: str) -> None:
    report_stats(ended(error, application=None, status=None))
    assert told == [(f"tony.job.{name}", 1, {**TAGS, "queue": "", "kind": kind})]
