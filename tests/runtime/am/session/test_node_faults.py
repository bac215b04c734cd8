"""Failures whose cause is the node: the task restarts on another node, which its program's budget does not pay for."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.test_restarts import WORKERS, policy, workers
from tests.runtime.am.session.world import World, job, task_type
from tony_provider.runtime.am.resource_manager import NodesCounted
from tony_provider.runtime.am.session.failures import FIRST_SECONDS
from tony_provider.runtime.am.session.restart_policy import COMPARISON, FREE_MOVES
from tony_provider.runtime.am.session.session_events import PreparationFailed
from tony_provider.runtime.jobspec.model import Preflight, RestartPolicy
from tony_provider.runtime.protocol.status import Failure, FailureKind

FULL: dict[str, Any] = {
    "exit_code": 1,
    "node_problem": "the disk of its container is full (4096 bytes left)",
}


@pytest.mark.parametrize(
    ("how", "lacks"),
    [
        (FULL, "the disk of its container is full"),
        (
            {"exit_code": 1, "output_tail": "OSError: [Errno 28] No space left on device: 'x'"},
            "disk of its node is full",
        ),
        ({"exit_code": 1, "output_tail": "OSError: [Errno 30] Read-only file system"}, "is read-only"),
        ({"exit_code": 1, "output_tail": "OSError: [Errno 98] Address already in use"}, "a port is in use on its node"),
        ({"exit_code": 127}, "its node lacks a program that "),
        ({"exit_code": 126}, "its node lacks permission to execute a program that "),
        (
            {"exit_code": 1, "output_tail": "libcudnn.so.9: cannot open shared object file"},
            "lacks a shared library that ",
        ),
    ],
)
def test_a_task_leaves_a_node_that_lacks_something(how: dict[str, Any], lacks: str) -> None:
    world = workers(budget=0).run()
    first, node = world.container("worker:1"), world.task("worker:1").node
    world.end("worker:1", **how)
    world.tick(COMPARISON)
    assert first in world.left | world.leaving
    assert world.avoided == (node,)
    assert any(lacks in message for message in world.noted("node_loss"))
    world.restarted()
    assert world.container("worker:1") != first
    assert world.generation == 2


def test_three_nodes_are_left_before_the_budget_pays() -> None:
    world = workers(budget=1).run()
    for _ in range(FREE_MOVES + 1):
        assert not world.finished
        world.end("worker:1", **FULL)
        world.tick()
        world.restarted()
    world.end("worker:1", **FULL)
    world.tick()
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.kind is FailureKind.NODE
    assert "the disk of its container is full" in failure.message
    assert "given up after 1 restart without progress" in failure.message


def test_after_progress_three_nodes_may_be_left_again() -> None:
    world = workers(budget=0).run()
    for step in range(1, 3 * FREE_MOVES):
        world.beat("worker:0", step=step)
        world.end("worker:1", **FULL)
        world.tick()
        world.restarted()
    assert not world.finished


def test_a_node_is_remembered_by_the_next_master() -> None:
    world = workers(budget=0).run()
    world.end("worker:1", **FULL)
    world.tick()
    world.restarted()
    avoided = world.avoided
    world.avoided = ()
    world.master_dies()
    world.come_back()
    assert avoided
    assert world.avoided == avoided


def test_the_next_master_grants_no_further_moves() -> None:
    world = workers(budget=0).run()
    for _ in range(FREE_MOVES):
        world.end("worker:1", **FULL)
        world.tick()
        world.restarted()
    world.master_dies()
    world.come_back()
    world.end("worker:1", **FULL)
    world.tick()
    world.complete_all()
    assert world.finished


def test_the_only_node_of_a_job_is_left_if_the_cluster_has_others() -> None:
    world = workers({"worker": 1}, budget=0)
    world.nodes = 1
    world.handle(NodesCounted(3))
    world.run()
    node = world.task("worker:0").node
    world.end("worker:0", **FULL)
    world.tick()
    assert world.avoided == (node,)


def test_the_nodes_of_a_label_are_not_all_avoided() -> None:
    world = workers({"worker": task_type(1, node_label="gpu")}, budget=0)
    world.nodes = 1
    world.handle(NodesCounted(100))
    world.run()
    world.end("worker:0", **FULL)
    world.tick()
    assert not world.avoided


@pytest.mark.parametrize(("gpus", "kind"), [(1, None), (0, FailureKind.USER)])
def test_messages_about_gpus_count_for_tasks_that_have_some(gpus: int, kind: FailureKind | None) -> None:
    """TensorFlow logs such a line in each process without GPU."""
    world = workers({"worker": task_type(2, gpus=gpus)}, budget=0).run()
    world.end("worker:1", exit_code=2, output_tail="CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
    world.tick()
    world.complete_all()
    assert (world.verdict.failure.kind if world.finished and world.verdict.failure else None) is kind


def test_what_fails_in_the_same_way_on_another_node_is_the_programs_fault() -> None:
    world = workers(budget=0).run()
    for _ in range(2):
        assert not world.finished
        world.end("worker:1", exit_code=1, output_tail="OSError: [Errno 30] Read-only file system: '/opt/model'")
        world.tick()
        world.restarted()
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.kind is FailureKind.USER
    assert len(world.noted("node_loss")) == 1


def test_a_program_that_is_missing_after_steps_does_not_fail_the_job() -> None:
    """The job has trained, so a restart may find what this start did not."""
    world = workers(budget=5).run()
    world.beat("worker:1", step=3)
    world.end("worker:1", exit_code=127)
    world.wait(6)
    assert not world.finished
    world.restarted()


HANDLED = "Traceback (most recent call last):\n  File \"t.py\", line 1\nModuleNotFoundError: No module named 'apex'"


@pytest.mark.parametrize(
    "how",
    [
        {"exit_code": 1, "output_tail": f"{HANDLED}\nfalling back to torch\nthe data server is not ready, giving up"},
        {"exit_code": 1, "output_tail": f"{HANDLED[:-33]}ImportError: /nfs/x.so: Stale file handle"},
        {"exit_code": 127, "output_tail": "x: error while loading shared libraries: y: Input/output error"},
        {"exit_code": 1, "output_tail": "/python: No module named t.__main__; 't' is a package and cannot be directly"},
    ],
)
def test_a_handled_import_error_and_an_unreadable_file_are_not_final(how: dict[str, Any]) -> None:
    world = lone(1)
    world.end("worker:0", **how)
    assert not world.finished


def test_different_modules_on_two_nodes_are_not_one_missing_module() -> None:
    world = lone(3)
    world.end("worker:0", exit_code=1, output_tail=IMPORT)
    world.tick()
    world.restarted()
    world.end("worker:0", exit_code=1, output_tail=IMPORT.replace("'x'", "'y'"))
    assert not world.finished


def test_a_program_that_no_node_has_fails_the_job() -> None:
    world = workers(budget=5).run()
    for name in list(world.states):
        world.end(name, exit_code=127)
    world.wait(6)
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.kind is FailureKind.LAUNCH
    assert failure.permanent


IMPORT = "Traceback (most recent call last):\n  File \"t.py\", line 1\nModuleNotFoundError: No module named 'x'"
LAUNCHED = f"""{IMPORT}
E1130 12:02:17.739128 4711 api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 4712) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/site-packages/torch/distributed/launcher/api.py", line 246, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
  time      : 2026-11-30_12:02:17
============================================================"""
MISSING: list[Any] = [
    {"exit_code": 127},
    {"exit_code": 126},
    {"exit_code": 1, "output_tail": IMPORT},
    {"exit_code": 1, "output_tail": LAUNCHED},
    {"exit_code": 1, "output_tail": "/usr/bin/python3: No module named trainer"},
    {
        "exit_code": 1,
        "output_tail": "python: Error while finding module specification for 't.m' "
        "(ModuleNotFoundError: No module named 't')",
    },
    {"exit_code": 2, "output_tail": "python: can't open file '/job/t.py': [Errno 2] No such file or directory"},
]


def final_failure(world: World) -> Failure:
    """Return the failure after which another application would fail in the same way."""
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.permanent
    return failure


def lone(nodes: int, budget: int = 5) -> World:
    """A worker on a cluster with this number of nodes."""
    world = workers({"worker": 1}, budget=budget)
    world.nodes = nodes
    world.handle(NodesCounted(nodes))
    return world.run()


@pytest.mark.parametrize("how", MISSING)
def test_what_is_missing_on_the_only_node_is_final(how: dict[str, Any]) -> None:
    world = lone(1)
    world.end("worker:0", **how)
    failure = final_failure(world)
    assert failure.message.partition("\n")[0].endswith(" a retry would fail the same way")
    assert "; the cluster's only node lacks " in failure.message


@pytest.mark.parametrize("how", MISSING)
@pytest.mark.parametrize("budget", [0, 5])
def test_what_is_missing_on_two_nodes_is_final(how: dict[str, Any], budget: int) -> None:
    world = lone(3, budget)
    world.end("worker:0", **how)
    world.tick()
    assert not world.finished
    assert any("that other nodes may have" in message for message in world.noted("node_loss"))
    world.restarted()
    world.end("worker:0", **how)
    failure = final_failure(world)
    assert failure.message.partition("\n")[0].endswith(" a retry would fail the same way")
    assert "; 2 nodes lack " in failure.message


def test_paths_of_containers_do_not_make_missing_modules_different() -> None:
    world = lone(3)
    for container in ("container_e1_17_0001_01_000002", "container_e1_17_0001_01_000003"):
        assert not world.finished
        world.end("worker:0", exit_code=1, output_tail=f"/d/{container}/env/bin/python: No module named trainer")
        if container.endswith("2"):
            world.tick()
            world.restarted()
    final_failure(world)


def test_all_workers_without_a_module_end_the_job_at_once() -> None:
    world = workers(budget=5).run()
    for name in list(world.states):
        world.end(name, exit_code=1, output_tail=IMPORT)
    world.wait(6)
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert (failure.permanent, failure.cause) == (True, "ModuleNotFoundError: No module named 'x'")
    assert world.generation == 1


@pytest.mark.parametrize("how", ["late", "after a step", "after a step of an earlier start"])
def test_a_later_import_error_is_an_ordinary_failure(how: str) -> None:
    world = lone(1)
    if how == "late":
        world.wait(FIRST_SECONDS + 1)
    else:
        world.beat("worker:0", step=1)
    if how.endswith("start"):
        world.end("worker:0", exit_code=3)
        world.tick()
        world.restarted()
    world.end("worker:0", exit_code=1, output_tail=IMPORT)
    world.tick()
    world.restarted()
    assert not world.finished
    assert world.status.restarted_after is not None
    assert world.status.restarted_after.cause == "ModuleNotFoundError: No module named 'x'"


def test_exit_codes_that_the_job_calls_permanent_are_so_on_any_node() -> None:
    world = workers(budget=5, permanent_exit_codes=[3]).run()
    world.end("worker:1", exit_code=3, output_tail="Address already in use")
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.permanent


def test_a_warning_before_the_traceback_is_not_the_cause() -> None:
    world = workers(budget=0).run()
    tail = "Address already in use: TensorBoard takes the next port\nTraceback (most recent call last):\nKeyError: 'x'"
    world.end("worker:1", exit_code=1, output_tail=tail)
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.kind is FailureKind.USER


def test_a_warning_is_not_the_cause() -> None:
    world = workers(budget=0).run()
    tail = "[W socket.cpp:464] failed to bind (errno: 98 - Address already in use).\nSegmentation fault"
    world.end("worker:1", exit_code=139, output_tail=tail)
    world.tick()
    world.complete_all()
    failure = world.verdict.failure
    assert failure is not None
    assert failure.kind is FailureKind.USER


# ---- preflight and suspect nodes -------------------------------------------------------------------------------------


def checked(world: World) -> list[Preflight | None]:
    return [order.preflight for order in world.rendezvous]


def test_by_default_only_a_start_after_a_lost_container_is_checked() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    world.lose("worker:1")
    world.tick(20)  # the second restart waits
    world.restarted()
    assert checked(world) == [None, None, Preflight.NETWORK]


@pytest.mark.parametrize(("wanted", "found"), [(True, Preflight.NETWORK), (False, None)])
def test_a_job_may_check_every_start_or_none(wanted: bool, found: Preflight | None) -> None:
    spec = attrs.evolve(job(WORKERS, policy=RestartPolicy()), preflight=wanted)
    world = World(spec, ["worker"]).run()
    world.lose("worker:1")
    world.restarted()
    assert checked(world) == [found, found]


def test_a_task_that_restarts_alone_checks_only_its_node() -> None:
    spec = attrs.evolve(job(WORKERS, policy=RestartPolicy()), preflight=True)
    world = World(spec, ["worker"], alone=True).run()
    world.lose("worker:1")
    world.restarted()
    assert checked(world) == [Preflight.NETWORK, Preflight.NODE]


def test_a_node_that_fails_the_preflight_is_left_at_once() -> None:
    spec = attrs.evolve(job(WORKERS, policy=RestartPolicy(budget=0)), preflight=True)
    world = World(spec, ["worker"])
    world.grant_all()
    world.register_all()
    node, first = world.task("worker:1").node, world.container("worker:1")
    world.report("worker:1", PreparationFailed(1, "", damaged=False, reason="its disk has 3 KiB free", unfit=True))
    world.tick()
    world.restarted()
    assert world.avoided == (node,)
    assert world.container("worker:1") != first
    assert any("its disk has 3 KiB free" in message for message in world.noted("node_loss"))
    assert not world.finished


@pytest.mark.parametrize("alone", [True, False])
def test_checks_that_fail_everywhere_end_and_do_not_fail_the_job(alone: bool) -> None:
    """Without the key, a check that every node fails must not keep a job from running."""
    world = World(job(WORKERS, policy=policy(budget=1)), ["worker"], alone=alone).run()
    world.lose("worker:1")
    while checked(world)[-1] is None:
        world.restarted()
    first = Preflight.NODE if alone else Preflight.NETWORK
    for expected in (first, *[Preflight.NODE] * (FREE_MOVES - 1)):
        assert checked(world)[-1] is expected
        start = world.executor("worker:1").start
        world.report("worker:1", PreparationFailed(start, "", damaged=False, reason="slow", unfit=True))
        world.tick()
        world.restarted()
    assert checked(world)[-1] is None
    assert not world.finished


@pytest.mark.parametrize(("most_losses", "avoided"), [(2, ("node2:1",)), (0, ())])
def test_nodes_that_lost_containers_of_other_jobs(most_losses: int, avoided: tuple[str, ...]) -> None:
    spec = job(WORKERS, policy=RestartPolicy(node_losses=most_losses))
    world = World(spec, ["worker"], suspects=["node2:1"])
    assert world.avoided == ()
    world.handle(NodesCounted(4))
    assert world.avoided == avoided
    assert not world.status.warnings, "this job has lost nothing"


def test_at_most_half_of_the_nodes_are_suspect() -> None:
    world = World(job(WORKERS), ["worker"], suspects=["node3:1", "node1:1", *(f"gone{each}:1" for each in range(9))])
    world.handle(NodesCounted(4))
    assert world.avoided == ("node1:1", "node3:1")


def test_suspect_nodes_that_were_allowed_again_stay_allowed() -> None:
    world = World(job(WORKERS), ["worker"], suspects=["node2:1"])
    world.handle(NodesCounted(4))
    world.session.containers.nodes.lift()
    world.avoided = ()
    world.handle(NodesCounted(5))
    assert world.avoided == ()
