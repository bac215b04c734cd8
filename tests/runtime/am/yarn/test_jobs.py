"""Jobs on a real YARN and HDFS whose parts go away and come back, and executors that are taken away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.permissions import open_to_all
from tests.waiting import until
from tony_provider.runtime.protocol.status import FailureKind, JobState

pytestmark = pytest.mark.long

SETTINGS = Settings(
    # HDFS goes by the name of a pair, as on most clusters.
    namenodes=2,
    # Started again and again by the tests: one that notices the loss of its master soon.
    properties={"yarn-site": {"yarn.resourcemanager.connect.retry-interval.ms": "500"}},
)


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """A cluster of our own, to break."""
    cluster = start_hadoop(SETTINGS)
    yield cluster
    cluster.stop()


@pytest.fixture
def yarn(cluster: HadoopCluster) -> Iterator[YarnPlace]:
    place = YarnPlace(cluster=cluster)
    yield place
    place.close()


@pytest.fixture
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that tasks wait for; it is not there yet."""
    folder = tmp_path_factory.mktemp("go")
    open_to_all(folder)
    return folder / "on"


def workers(command: str, instances: int = 2, memory: str = "128MiB", **task: object) -> dict[str, object]:
    return {
        "timeouts": {"grace": "2s"},
        "tasks": {"worker": {"instances": instances, "memory": memory, "command": command, **task}},
    }


def waiting(go: Path) -> str:
    return f"until [ -e {go} ]; do sleep 0.1; done"


def events(job: Job) -> list[str]:
    return [str(event["event"]) for event in job.events()]


def assert_undisturbed(job: Job, am_attempt: int = 1) -> None:
    status = job.succeeded()
    assert {(task.attempt, task.start) for task in status.tasks} == {(1, 1)}
    assert (status.am_attempt, status.restarts) == (am_attempt, 0)
    assert events(job).count("rendezvous") <= 1  # a master that is killed may not have written down its last second


def test_restart_of_the_resource_manager_is_no_event_for_a_running_job(yarn: YarnPlace, go: Path) -> None:
    job = yarn.submit(workers(waiting(go)))
    job.until(JobState.RUNNING)
    yarn.cluster.kill("resourcemanager-1")
    until(lambda: "cluster_unreachable" in events(job), job.describe)
    yarn.cluster.restart("resourcemanager-1")
    go.touch()
    assert_undisturbed(job)


def test_a_resource_manager_that_dies_with_the_master_is_no_event_for_the_tasks(yarn: YarnPlace, go: Path) -> None:
    """The next one learns from the nodes what runs, and starts the next master, which finds it there."""
    job = yarn.submit(workers(waiting(go)))
    job.until(JobState.RUNNING)
    yarn.cluster.kill("resourcemanager-1")
    os.kill(job.master().pid, signal.SIGKILL)
    yarn.cluster.restart("resourcemanager-1")
    until(lambda: job.status().am_attempt == 2 and job.status().state is JobState.RUNNING, job.describe)
    go.touch()
    assert_undisturbed(job, am_attempt=2)


def test_failover_of_the_namenode_is_no_event_for_a_running_job(yarn: YarnPlace, go: Path) -> None:
    job = yarn.submit(workers(waiting(go)))
    job.until(JobState.RUNNING)
    yarn.cluster.kill("namenode-1")
    yarn.cluster.activate_namenode(2)
    go.touch()
    assert_undisturbed(job)
    yarn.cluster.restart("namenode-1")


def test_requests_survive_the_resource_manager(yarn: YarnPlace) -> None:
    """More than the cluster holds, until the other job has ended."""
    memory = f"{yarn.most_of_a_node}MiB"
    first = yarn.submit(workers("sleep 1000", memory=memory))
    first.until(JobState.RUNNING)
    second = yarn.submit(workers("true", memory=memory))
    second.until(JobState.WAITING)
    yarn.cluster.restart("resourcemanager-1")
    first.hook.kill(first.id, "makes room")
    second.end()
    second.succeeded()


def test_executor_that_is_killed_is_replaced(yarn: YarnPlace, go: Path) -> None:
    """In a new container; the other one goes on."""
    kills = '[ "$TONY_TASK_INDEX$TONY_ATTEMPT" = 11 ] && kill -9 $PPID'
    job = yarn.submit(workers(f"{kills}; {waiting(go)}"))
    job.until(JobState.RUNNING)
    until(lambda: job.task("worker:1").attempt == 2, job.describe)
    job.until(JobState.RUNNING)
    go.touch()
    status = job.succeeded()
    assert status.restarts == 1
    assert {task.index: (task.attempt, task.start) for task in status.tasks} == {0: (1, 1), 1: (2, 2)}


def test_executor_that_is_killed_is_the_cause_where_nothing_restarts(yarn: YarnPlace) -> None:
    job = yarn.submit(workers('[ "$TONY_TASK_INDEX" = 1 ] && kill -9 $PPID; exec sleep 1000', restart="never"))
    job.end()
    diagnostics = job.failed()
    failure = job.status().failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.CONTAINER_LOST, "worker:1")
    assert "SIGKILL" in diagnostics


def test_executor_that_hangs_is_lost(yarn: YarnPlace) -> None:
    """And with it, its user process: its container is taken away."""
    job = yarn.submit(workers('[ "$TONY_TASK_INDEX" = 1 ] && kill -STOP $PPID; exec sleep 1000', restart="never"))
    job.end()
    assert "its executor sent nothing for" in job.failed()
    failure = job.status().failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.CONTAINER_LOST, "worker:1")
    until(lambda: not yarn.cluster.containers(), job.describe)
