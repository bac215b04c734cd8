"""What trainings have in common that outlive HDFS's tokens: clusters, jobs, waiting, and what dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.settings import REALM
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.protocol.status import JobState

LIFE_MS = 45_000  # that a token can be renewed for
INTERVAL_MS = 30_000  # that it holds without being renewed: executors must find the next master before


def short_tokens(life_ms: int = LIFE_MS, interval_ms: int = INTERVAL_MS) -> dict[str, dict[str, str]]:
    """Properties of a cluster whose HDFS tokens live for seconds, and whose ResourceManager gets others for the nodes.

    With these its NodeManagers fetch the files of later containers, a later master's among them.
    """
    tokens = {
        "dfs.namenode.delegation.token.max-lifetime": str(life_ms),
        "dfs.namenode.delegation.token.renew-interval": str(interval_ms),
    }
    yarn = {
        "yarn.resourcemanager.proxy-user-privileges.enabled": "true",
        # Before a token's end it gets another for the nodes, and renews the first no more; by default 3 hours before.
        "yarn.resourcemanager.system-credentials.valid-time-remaining": "3000",
    }
    core = {"hadoop.proxyuser.yarn.hosts": "*", "hadoop.proxyuser.yarn.users": "*"}
    return {"hdfs-site": tokens, "yarn-site": yarn, "core-site": core}


@contextmanager
def as_user(place: YarnPlace) -> Iterator[YarnPlace]:
    """The place, with a ticket of the user that jobs there run as. In the end its jobs and its cluster are stopped."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.cluster.layout.kerberos_environment(USER).items():
            if name.startswith("KRB5"):
                patch.setenv(name, value)
        yield place
        place.close()
        place.cluster.stop()


def with_keytab(place: YarnPlace) -> YarnPlace:
    """The same, for masters that fetch newer tokens themselves."""
    keytab = {"master_keytab": str(place.cluster.layout.keytab(USER)), "master_principal": f"{USER}@{REALM}"}
    return YarnPlace({**place.extra, **keytab}, cluster=place.cluster)


def command(here: Path) -> str:
    """Until it may end; it says which HDFS tokens it finds at first and at last."""
    tokens = "md5sum < $HADOOP_TOKEN_FILE_LOCATION"
    return (
        f"{tokens}; until [ -e {here}/end ]; do sleep 0.2; done; {tokens}; "
        "test $TONY_RANK != 0 || echo weights > $TONY_MODEL_DIR/model"
    )


def spec(here: Path) -> dict[str, Any]:
    worker = {"instances": 2, "memory": "256MiB", "command": command(here)}
    return {"hadoop": True, "tasks": {"worker": worker}}


def until_ms(job: Job) -> int:
    status = job.status()
    return status.store_token.until_ms if status.store_token is not None else 0


def until_newer(job: Job) -> None:
    known = until_ms(job)
    until(lambda: until_ms(job) > known, "a newer token")


def until_over(job: Job, moment_ms: int) -> None:
    """What was submitted with the job opens nothing any more."""
    until(lambda: epoch_ms() > moment_ms + 1000, f"the end of its first token, at {moment_ms}")


def until_first_is_over(job: Job) -> int:
    """It runs, somebody has brought a newer token, and the first has ended; when that was, in ms since the epoch."""
    job.until(JobState.RUNNING)
    first = until_ms(job)
    until_newer(job)
    until_over(job, first)
    return first


def kill_master(job: Job) -> None:
    os.kill(job.master().pid, signal.SIGKILL)

    def goes_on() -> bool:
        status = job.status()
        return (status.am_attempt, status.state) == (2, JobState.RUNNING)

    until(goes_on, job.describe)


def kill_executor(job: Job, task: str) -> None:
    def executors() -> list[int]:
        container = job.task(task).container_id or "?"
        return [each.pid for each in job.executors() if each.holds(container)]

    os.kill(until(executors, job.describe)[0], signal.SIGKILL)
    until(lambda: job.task(task).attempt == 2 and job.status().state is JobState.RUNNING, job.describe)


def assert_well(job: Job, place: YarnPlace) -> None:
    job.succeeded()
    assert job.read("model/model") == "weights\n"
    assert_nothing_left(place, job)


def tokens_seen(job: Job) -> int:
    """How many different token files the program of worker:0 has found."""
    return len({line for line in job.log("worker:0").splitlines() if line.endswith("  -")})
