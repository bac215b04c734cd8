"""What only a real YARN has: other jobs that are in the way, and several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advice.real.jobs import Ran, fit, lose, ran
from tests.advice.real.table import Verdicts
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.advice.rules.restart_costs import FailingNode
from tony_provider.advice.rules.start_delay import QueueWait
from tony_provider.runtime.protocol.status import JobState, TaskState

WAIT = 30.0  # seconds that a job waits for the cluster


@pytest.mark.long
def test_queue_wait(yarn: YarnPlace, verdicts: Verdicts) -> None:
    """Another job holds one of the nodes, and each task wants most of one."""
    rule = QueueWait(least_seconds=WAIT / 2)
    of_a_node = f"{yarn.most_of_a_node}MiB"
    other = yarn.submit({"tasks": {"worker": {"memory": of_a_node, "command": "sleep 1000"}}})
    other.until(JobState.RUNNING)
    gang = fit("--steps 60 --pace 0.1", memory=of_a_node, instances=yarn.nodes)
    waiting = yarn.submit(gang)
    until(lambda: _waited(waiting) >= WAIT, waiting.describe)
    other.hook.kill(other.id, "the others have waited for long enough")
    waited = ran(waiting)
    waited.job.succeeded()
    advice = verdicts.told(rule, "a node's worth for each of its tasks, and another job on one of the nodes", waited)
    assert advice.change == {"start": "first-come"}
    verdicts.silent(rule, "the same when nobody is in the way", ran(yarn.submit(gang)))


@pytest.mark.long
def test_a_job_that_need_not_wait_once_it_is_advised(yarn: YarnPlace) -> None:
    """With the change of queue-wait its first task trains while another job holds a node, and so does the next then."""
    of_a_node = f"{yarn.most_of_a_node}MiB"
    other = yarn.submit({"tasks": {"worker": {"memory": of_a_node, "command": "sleep 1000"}}})
    other.until(JobState.RUNNING)
    gang = fit("--steps 60 --pace 0.1", memory=of_a_node, instances=yarn.nodes, job={"start": "first-come"})
    status = yarn.submit(gang).succeeded()
    assert [task.state for task in status.tasks] == [TaskState.SUCCEEDED] * yarn.nodes
    assert not other.application().is_final


def _waited(job: Job) -> float:
    status = job.hook.job_status(job.identity, job.id)
    return status.times.allocation if status and status.times else 0.0


@pytest.mark.long
def test_failing_node(yarn: YarnPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    """A node that loses a container again and again: its executor is killed, and no other node has room for it."""
    rule = FailingNode()
    tmp_path.chmod(0o777)

    def ran_with_losses(*tasks: str) -> tuple[Ran, list[str]]:
        end = tmp_path / "-".join(tasks).replace(":", "")
        restart = {"node_losses": 0, "budget": 10, "same_failure": 10, "backoff": "0.1s"}
        spec = fit(f"--steps 10 --until {end}", memory=f"{yarn.most_of_a_node}MiB", instances=yarn.nodes)
        job = yarn.submit({**spec, "restart": restart})
        nodes = [lose(job, task) for task in tasks]
        end.touch()
        job.succeeded()
        return ran(job), nodes

    bad, nodes = ran_with_losses("worker:0", "worker:0")
    assert len(set(nodes)) == 1
    advice = verdicts.told(rule, "two containers lost on one of the nodes", bad)
    assert nodes[0].startswith(advice.evidence["node"])
    assert advice.evidence["lost_containers"] == 2
    assert advice.change == {"restart": {"node_losses": 1}}
    unlucky, nodes = ran_with_losses("worker:0", "worker:1")
    assert len(set(nodes)) == 2
    verdicts.silent(rule, "a container lost on each of two nodes", unlucky)
