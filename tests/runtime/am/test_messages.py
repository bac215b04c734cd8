"""What the session wants, as executors are told it."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am import messages
from tony_provider.runtime.am.session.actions import SendRendezvous, StopProcess
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.protocol import points, tony_pb2
from tony_provider.runtime.spec.model import Role

CLUSTER = ClusterSpec(
    3,
    (
        TaskAddress("chief", 0, Role.CHIEF, "n1", {"main": 1}),
        TaskAddress("worker", 0, Role.WORKER, "n2", {"main": 2, "grpc": 3}),
    ),
)


def test_rendezvous_has_each_task_s_own_start() -> None:
    action = SendRendezvous(CLUSTER, {"chief:0": 4, "worker:0": 7}, ResumePoint(120, "hdfs://n/c", 7, 1000, "crc32:1"))
    sent = {task: message.rendezvous for task, message in list(messages.rendezvous(action))}
    assert {task: each.start for task, each in sent.items()} == {"chief:0": 4, "worker:0": 7}
    for each in sent.values():
        assert each.generation == 3
        assert points.of_message(each.resume) == ResumePoint(120, "hdfs://n/c", 7, 1000, "crc32:1")
        assert not each.keep_checkpoints
        assert [(task.type, task.index, task.role, task.host, dict(task.ports)) for task in each.tasks] == [
            ("chief", 0, "chief", "n1", {"main": 1}),
            ("worker", 0, "worker", "n2", {"main": 2, "grpc": 3}),
        ]


def test_without_a_resume_point_a_rendezvous_has_none() -> None:
    ((_, message),) = messages.rendezvous(SendRendezvous(CLUSTER, {"chief:0": 1}, keep_checkpoints=True))
    assert not message.rendezvous.HasField("resume")
    assert message.rendezvous.keep_checkpoints


def test_stop_of_a_process() -> None:
    action = StopProcess("worker:0", 3, 7, 30.0, 60.0, "no progress", stacks=True)
    assert messages.stop_process(action).stop == tony_pb2.StopProcess(
        generation=3, start=7, grace_seconds=30.0, checkpoint_seconds=60.0, reason="no progress", stacks=True
    )


@pytest.mark.parametrize("step", [None, 0, 120])
def test_a_resume_point_says_its_step_or_none(step: int | None) -> None:
    point = ResumePoint(step, "hdfs://n/c", 7)
    message = points.message(point)
    assert message is not None
    assert points.of_message(message) == point
