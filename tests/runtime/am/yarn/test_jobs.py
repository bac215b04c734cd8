"""Jobs on a real YARN whose parts go away and come back, and executors that are taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime.protocol.status import FailureKind, JobState

# Started again and again by the tests: one that notices the loss of its master soon.
SETTINGS = Settings(properties={"yarn-site": {"yarn.resourcemanager.connect.retry-interval.ms": "500"}})


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> HadoopCluster:
    """A cluster of our own, to break."""
    return start_hadoop(SETTINGS)


@pytest.fixture
def yarn(cluster: HadoopCluster) -> Iterator[YarnPlace]:
    place = YarnPlace(cluster=cluster)
    yield place
    place.close()


def workers(command: str, instances: int = 2, memory: str = "128MiB") -> dict[str, object]:
    return {
        "timeouts": {"grace": "2s"},
        "tasks": {"worker": {"instances": instances, "memory": memory, "command": command}},
    }


def events(job: Job) -> list[str]:
    return [str(event["event"]) for event in job.events()]


def test_restart_of_the_resource_manager_is_no_event_for_a_running_job(
    yarn: YarnPlace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go")
    go.chmod(0o755)
    job = yarn.submit(workers(f"until [ -e {go}/on ]; do sleep 0.1; done"))
    job.until(JobState.RUNNING)
    yarn.cluster.kill("resourcemanager-1")
    until(lambda: "cluster_unreachable" in events(job), job.describe)
    yarn.cluster.restart("resourcemanager-1")
    (go / "on").touch()
    job.end()
    status = job.succeeded()
    assert {task.attempt for task in status.tasks} == {1}
    assert status.am_attempt == 1
    assert events(job).count("rendezvous") == 1


def test_requests_survive_the_resource_manager(yarn: YarnPlace) -> None:
    """More than the cluster holds, until the other job has ended."""
    memory = f"{yarn.cluster.settings.node_memory_mb * 6 // 10}MiB"
    first = yarn.submit(workers("sleep 1000", memory=memory))
    first.until(JobState.RUNNING)
    second = yarn.submit(workers("true", memory=memory))
    second.until(JobState.WAITING)
    yarn.cluster.restart("resourcemanager-1")
    first.hook.kill(first.id, "makes room")
    second.end()
    second.succeeded()


def test_executor_that_is_killed_is_the_cause(yarn: YarnPlace) -> None:
    job = yarn.submit(workers('[ "$TONY_TASK_INDEX" = 1 ] && kill -9 $PPID; exec sleep 1000'))
    job.end()
    diagnostics = job.failed()
    failure = job.status().failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.CONTAINER_LOST, "worker:1")
    assert "SIGKILL" in diagnostics


def test_executor_that_hangs_is_lost(yarn: YarnPlace) -> None:
    """And with it, its user process: its container is taken away."""
    job = yarn.submit(workers('[ "$TONY_TASK_INDEX" = 1 ] && kill -STOP $PPID; exec sleep 1000'))
    job.end()
    assert "nothing was heard of it for" in job.failed()
    failure = job.status().failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.CONTAINER_LOST, "worker:1")
    until(lambda: not yarn.cluster.containers(), job.describe)
