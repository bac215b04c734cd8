"""When a watcher brings a job a newer token of its store, and what it tells of that."""

from __future__ import annotations

import time
from typing import Any

import attrs
import pytest

from tests.operators.statuses import ID, application, status
from tests.watching.observations import Clock
from tony_provider.cluster.errors import MasterOutOfReach
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.watching.observation import Observation
from tony_provider.watching.token_refresher import TokenRefresher

DAY = 86400.0
BEGAN = 1_700_000_000.0


@attrs.define
class JobOfTokens:
    """Stands in for the job: gives tokens for a day, or an error."""

    clock: Clock
    error: str = ""
    asked: int = 0

    def __str__(self) -> str:
        return ID

    def refresh_store_token(self) -> TokenLife:
        self.asked += 1
        if self.error:
            raise MasterOutOfReach(self.error)
        return life(self.clock.now, 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(BEGAN)
    monkeypatch.setattr(time, "time", clock)
    return clock


def life(began: float, days: float) -> TokenLife:
    return TokenLife(int(began * 1000), int((began + days * DAY) * 1000))


def seen(token: TokenLife | None, cluster: str = "RUNNING", attempt: int = 1, **fields: Any) -> Observation:
    name = f"appattempt_1700000000000_0001_{attempt:06d}"
    return Observation(application(cluster, attempt=name), status("RUNNING", store_token=token, **fields))


def test_it_is_due_once_half_the_tokens_life_is_over(clock: Clock) -> None:
    renewal, week = TokenRefresher(), seen(life(BEGAN, 7))
    clock.now += 3.4 * DAY
    assert not renewal.is_due(week)
    clock.now += 0.2 * DAY
    assert renewal.is_due(week)
    assert not renewal.is_due(seen(life(BEGAN, 7), "FINISHED"))
    assert not renewal.is_due(seen(None))


def test_it_is_due_again_when_half_of_the_newer_one_is_over(clock: Clock) -> None:
    renewal, job, week = TokenRefresher(), JobOfTokens(clock), seen(life(BEGAN, 7))
    clock.now += 4 * DAY
    assert renewal.renew(job, week)  # type: ignore[arg-type]  # all that it asks of a job
    assert list(renewal.lines()) == [f"{ID} has a new HDFS token, valid until 2023-11-19 22:13:20 UTC"]
    assert not renewal.is_due(week)  # its status has not told of it yet
    clock.now += 0.6 * DAY
    assert renewal.is_due(week)


def test_what_fails_is_told_once_and_tried_again_soon(clock: Clock) -> None:
    renewal, job, week = TokenRefresher(), JobOfTokens(clock, "no master there"), seen(life(BEGAN, 7))
    clock.now += 4 * DAY
    for _ in range(100):
        if renewal.is_due(week):
            assert not renewal.renew(job, week)  # type: ignore[arg-type]
        clock.now += 60
    assert 3 <= job.asked <= 4  # in 100 minutes
    assert list(renewal.lines()) == [f"Could not send {ID} a new HDFS token yet: no master there"]
    job.error = ""
    clock.now += DAY
    assert renewal.renew(job, week)  # type: ignore[arg-type]


def test_a_later_master_gets_one_at_once_and_once(clock: Clock) -> None:
    renewal, job = TokenRefresher(), JobOfTokens(clock)
    later = seen(life(BEGAN, 7), attempt=2, am_attempt=1)
    assert renewal.is_due(later)
    assert renewal.renew(job, later)  # type: ignore[arg-type]
    clock.now += 60
    assert not renewal.is_due(later)
    assert not renewal.is_due(seen(life(BEGAN, 7), attempt=2, am_attempt=2))
    assert not TokenRefresher().is_due(seen(life(BEGAN, 7), attempt=2, am_attempt=2))
