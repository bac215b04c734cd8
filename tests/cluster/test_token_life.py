"""Jobs that nobody waits for, and the token that they begin with."""

from __future__ import annotations

import logging
import time

import pytest

from tests.runtime.delegation_tokens import made
from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.token_refresh import check_token_life, warn_of_short_ticket
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.store_tokens import put_metastore_token, put_store_token, store_token

DAY_MS = 86_400_000
TOKEN = made(1, 1000, 1000 + 7 * DAY_MS)


def job(**timeouts: str) -> JobSpec:
    return parse_job({"framework": "standalone", "tasks": {"worker": {"command": "true"}}, "timeouts": timeouts})


def test_a_longer_one_is_refused_with_what_to_do() -> None:
    with pytest.raises(JobRejected) as refused:
        check_token_life(TOKEN, job(lifetime="10d"))
    said = str(refused.value)
    assert "timeouts.lifetime is 10 d, its HDFS token is valid for 7 d, and no waiting task sends newer tokens" in said
    for remedy in ("airflow tony renew", "tokens_renewed", "wait_for_completion", "master_keytab"):
        assert remedy in said


def test_a_token_of_hive_lives_a_day_without_renewals() -> None:
    credentials = Credentials()
    put_store_token(credentials, TOKEN.text, ["ha-hdfs:prod"])
    put_metastore_token(credentials, "thrift://hms:9083", TOKEN.text)
    token = store_token(credentials)
    assert token is not None
    assert [token.until_ms, *(each.until_ms for each in token.others)] == [1000 + 7 * DAY_MS, 1000 + DAY_MS]
    with pytest.raises(JobRejected, match=r"timeouts\.lifetime is 2 d, its HDFS token is valid for 1 d"):
        check_token_life(token, job(lifetime="2d"))


def test_a_shorter_one_is_fine(caplog: pytest.LogCaptureFixture) -> None:
    check_token_life(TOKEN, job(lifetime="7d"))
    assert caplog.text == ""


def test_one_without_a_limit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_token_life(TOKEN, job())
    assert "its HDFS token is valid for 7 d" in caplog.text


@pytest.mark.parametrize(
    ("hours", "timeouts", "told"),
    [
        pytest.param(10, {}, True, id="it ends before half the life of the token"),
        pytest.param(4 * 24, {}, False, id="a newer token can be brought"),
        pytest.param(10, {"lifetime": "9h"}, False, id="the job ends before"),
        pytest.param(10, {"lifetime": "11h"}, True, id="the job may last longer"),
        pytest.param(None, {"lifetime": "99d"}, False, id="nobody can tell, or it does not end"),
    ],
)
def test_a_ticket_that_ends_before_the_job_need_is_told(
    hours: int | None, timeouts: dict[str, str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time()
    token = made(1, int(now * 1000), int(now * 1000) + 7 * DAY_MS)
    with caplog.at_level(logging.WARNING):
        warn_of_short_ticket(None if hours is None else now + hours * 3600, token, job(**timeouts))
    assert ("This worker's Kerberos ticket expires at 20" in caplog.text) == told
