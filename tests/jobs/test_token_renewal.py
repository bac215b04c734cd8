"""A training that takes longer than HDFS's tokens live, on a Kerberos cluster where they end within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.places import YarnPlace
from tests.jobs.renewals import (
    as_user,
    assert_well,
    kill_executor,
    kill_master,
    short_tokens,
    spec,
    tokens_seen,
    until_first_is_over,
    until_ms,
    until_newer,
    until_over,
    with_keytab,
)
from tests.jobs.waiters import deferred
from tests.waiting import until
from tony_provider.cluster.records.summary import reason
from tony_provider.runtime.protocol.status import JobState


@pytest.fixture(scope="module")
def short_lived(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """A Kerberos cluster of short-lived tokens."""
    settings = Settings(secure=True, https=True, rpc_protection="privacy", namenodes=2, properties=short_tokens())
    with as_user(YarnPlace(cluster=start_hadoop(settings))) as place:
        yield place


def test_a_training_outlives_its_tokens_its_master_and_a_container(short_lived: YarnPlace, tmp_path: Path) -> None:
    job = short_lived.submit(spec(tmp_path))
    with deferred(job, short_lived):
        until_first_is_over(job)
        kill_master(job)
        kill_executor(job, "worker:1")
        until_newer(job)
        until_newer(job)
        (tmp_path / "end").touch()
        job.end()
    assert_well(job, short_lived)
    assert tokens_seen(job) == 2
    assert [each["event"] for each in job.events()].count("store_token") >= 4  # one for the second master alone


@pytest.mark.long
def test_a_master_with_a_keytab_needs_nobody(short_lived: YarnPlace, tmp_path: Path) -> None:
    place = with_keytab(short_lived)
    job = place.submit(spec(tmp_path), watched=False)
    until_first_is_over(job)
    kill_master(job)
    until_newer(job)
    (tmp_path / "end").touch()
    job.end()
    assert_well(job, place)
    assert tokens_seen(job) == 2


@pytest.mark.long
def test_a_token_that_comes_late_mends_what_could_not_be_kept(short_lived: YarnPlace, tmp_path: Path) -> None:
    """Nobody waits: people are told, the program is asked for a last checkpoint, and its model waits for the store."""
    job = short_lived.submit(spec(tmp_path), watched=False)
    job.until(JobState.RUNNING)
    first = until_ms(job)
    until(lambda: any("no newer token has arrived" in each for each in job.status().troubles), job.describe)
    until(lambda: any(each["event"] == "checkpoint_requested" for each in job.events()), job.describe)
    until_over(job, first)
    (tmp_path / "end").touch()
    until(lambda: "HDFS token expired at" in str(job.handle.master_status().troubles), job.describe)
    life = job.handle.refresh_store_token()
    assert life is not None
    assert life.until_ms > first
    job.end()
    assert_well(job, short_lived)


@pytest.mark.long
def test_a_job_that_fails_as_its_token_has_ended_says_so_and_what_to_do(short_lived: YarnPlace, tmp_path: Path) -> None:
    job = short_lived.submit({**spec(tmp_path), "timeouts": {"upload": "2s"}}, watched=False)
    job.until(JobState.RUNNING)
    first = until_ms(job)
    until_over(job, first)
    (tmp_path / "end").touch()
    said = job.failed()
    assert "the application's HDFS token expired at 20" in said
    assert "run `airflow tony renew` regularly" in said
    # What Airflow's summary keeps, where the job could not leave its own word on the store.
    kept = reason(job.application(), job.hook.job_status(job.identity, job.id))
    assert "HDFS token expired at" in kept
