"""A training that takes longer than HDFS's tokens live, on a Kerberos cluster where they end within seconds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.watching.observation import observe
from tony_provider.watching.token_renewal import TokenRenewal

LIFE_MS = 30_000  # that a token can be renewed for
INTERVAL_MS = 20_000  # that it holds without being renewed


@pytest.fixture(scope="module")
def short_lived(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """A Kerberos cluster whose HDFS tokens live for seconds, and whose ResourceManager gets newer ones for the nodes.

    With these its NodeManagers fetch the files of later containers, a later master's among them.
    """
    tokens = {
        "dfs.namenode.delegation.token.max-lifetime": str(LIFE_MS),
        "dfs.namenode.delegation.token.renew-interval": str(INTERVAL_MS),
    }
    yarn = {"yarn.resourcemanager.proxy-user-privileges.enabled": "true"}
    core = {"hadoop.proxyuser.yarn.hosts": "*", "hadoop.proxyuser.yarn.users": "*"}
    properties = {"hdfs-site": tokens, "yarn-site": yarn, "core-site": core}
    cluster = start_hadoop(Settings(secure=True, rpc_protection="privacy", namenodes=2, properties=properties))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.layout.kerberos_environment(USER).items():
            if name.startswith("KRB5"):
                patch.setenv(name, value)
        place = YarnPlace(cluster=cluster)
        yield place
        place.close()


@contextmanager
def watched(job: Job, place: YarnPlace) -> Iterator[list[str]]:
    """While somebody waits for the job, as operators and triggers do; yields what these would tell."""
    told: list[str] = []
    over = threading.Event()
    hook, renewal = place.hook(), TokenRenewal(job.identity, job.id)

    def watch() -> None:
        while not over.wait(0.5):
            seen = observe(hook, job.identity, job.id)
            if renewal.is_due(seen):
                renewal.renew(hook, seen)
            told.extend(renewal.lines())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


def command(here: Path) -> str:
    return (
        f"until [ -e {here}/end ]; do sleep 0.2; done; test $TONY_RANK != 0 || echo weights > $TONY_MODEL_DIR/model; "
        "echo trained"
    )


def until_ms(job: Job) -> int:
    status = job.status()
    return status.store_token.until_ms if status is not None and status.store_token is not None else 0


def test_a_training_outlives_its_tokens_and_its_master(short_lived: YarnPlace, tmp_path: Path) -> None:
    spec = {"tasks": {"worker": {"instances": 2, "memory": "256MiB", "command": command(tmp_path)}}}
    job = short_lived.submit(spec)
    with watched(job, short_lived) as told:
        job.until(JobState.RUNNING)
        first = until_ms(job)
        until(lambda: until_ms(job) > first, lambda: f"a newer token: {told}")
        until(lambda: epoch_ms() > first + 1000, "the end of the token that it was submitted with", seconds=90)
        os.kill(job.master().pid, signal.SIGKILL)

        def goes_on() -> JobStatus | None:
            status = job.status()
            return status if status and (status.am_attempt, status.state) == (2, JobState.RUNNING) else None

        until(goes_on, lambda: f"{told}\n{job.describe()}", seconds=120)
        second = until_ms(job)
        until(lambda: until_ms(job) > second, lambda: f"another newer token: {told}", seconds=60)
        (tmp_path / "end").touch()
        job.end()
    status = job.succeeded()
    assert job.read("model/model") == "weights\n"
    assert "trained" in job.log("worker:1")
    assert status.restarts == 0
    assert_nothing_left(short_lived, job)
