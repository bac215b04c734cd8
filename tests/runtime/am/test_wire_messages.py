"""What the session wants, as executors are told it."""

from __future__ import annotations

import attrs
import pytest

from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.session.actions import SendRendezvous, StopProcess
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.protocol import addresses, points, tony_pb2
from tony_provider.runtime.spec.model import Role

CLUSTER = ClusterSpec(
    3,
    (
        TaskAddress("chief", 0, Role.CHIEF, "n1", {"main": 1}),
        TaskAddress("worker", 0, Role.WORKER, "n2", {"main": 2, "grpc": 3}),
    ),
)


def made(action: SendRendezvous) -> dict[str, tony_pb2.Rendezvous]:
    return {task: make().rendezvous for task, make in wire_messages.Rendezvous().messages(action)}


def test_rendezvous_has_each_task_s_own_start() -> None:
    point = ResumePoint(120, "hdfs://n/c", 7, 1000, "crc32:1")
    sent = made(SendRendezvous(CLUSTER, {"chief:0": 4, "worker:0": 7}, point))
    assert {task: each.start for task, each in sent.items()} == {"chief:0": 4, "worker:0": 7}
    for each in sent.values():
        assert points.of_message(each.resume) == point
        assert not each.keep_checkpoints
        assert Order.of_message(each).cluster == CLUSTER


def test_without_a_resume_point_a_rendezvous_has_none() -> None:
    (rendezvous,) = made(SendRendezvous(CLUSTER, {"chief:0": 1}, keep_checkpoints=True)).values()
    assert not rendezvous.HasField("resume")
    assert rendezvous.keep_checkpoints


def many(tasks: int) -> ClusterSpec:
    port = 20000
    return ClusterSpec(
        1,
        tuple(
            TaskAddress("worker", index, Role.WORKER, f"node{index // 8:04}.example.com", {"main": port + index})
            for index in range(tasks)
        ),
    )


def test_addresses_of_all_are_encoded_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each task's copy is made when it is sent, since all of them together grow with the square."""
    encoded: list[ClusterSpec] = []
    pack = addresses.Packer.pack

    def counted(packer: addresses.Packer, cluster: ClusterSpec) -> bytes:
        encoded.append(cluster)
        return pack(packer, cluster)

    monkeypatch.setattr(addresses.Packer, "pack", counted)
    monkeypatch.setattr(tony_pb2, "ToExecutor", None)  # nothing is made yet
    action = SendRendezvous(many(300), {f"worker:{index}": 1 for index in range(300)})
    rendezvous = wire_messages.Rendezvous()
    waiting = list(rendezvous.messages(action))
    # Those that come back are told again, one by one.
    waiting += [sent for task in action.starts for sent in rendezvous.messages(attrs.evolve(action, starts={task: 1}))]
    assert (len(waiting), len(encoded)) == (600, 1)
    monkeypatch.undo()
    assert {make().rendezvous.cluster for _, make in waiting} == {addresses.pack(action.cluster)}


def test_message_of_a_large_job_is_far_below_what_grpc_takes() -> None:
    sizes = {tasks: len(addresses.pack(many(tasks))) for tasks in (1000, 10_000)}
    assert sizes[10_000] < 11 * sizes[1000]
    assert sizes[10_000] < 4 << 16  # of 4 MiB


def test_stop_of_a_process() -> None:
    action = StopProcess("worker:0", 3, 7, 30.0, 60.0, "no progress", stacks=True)
    assert wire_messages.stop_process(action).stop == tony_pb2.StopProcess(
        generation=3, start=7, grace_seconds=30.0, checkpoint_seconds=60.0, reason="no progress", stacks=True
    )


@pytest.mark.parametrize("step", [None, 0, 120])
def test_a_resume_point_says_its_step_or_none(step: int | None) -> None:
    point = ResumePoint(step, "hdfs://n/c", 7)
    message = points.message(point)
    assert message is not None
    assert points.of_message(message) == point
