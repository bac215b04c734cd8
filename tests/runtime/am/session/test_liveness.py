"""Executors that fall silent, user processes that take no step, and jobs whose time is over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import EPOCH, World, job
from tony_provider.runtime.jobspec.model import RestartPolicy
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, TaskState

LOST_AFTER = limits.lost_after(limits.HEARTBEAT_INTERVAL)


def workers(number: int = 2, **timeouts: Any) -> World:
    return World(job({"worker": number}, policy=RestartPolicy(), **timeouts), ["worker"])


@pytest.mark.parametrize(("tasks", "seconds"), [(1, 3.0), (900, 3.0), (3000, 10.0)])
def test_heartbeats_come_less_often_the_more_tasks_there_are(tasks: int, seconds: float) -> None:
    assert workers(tasks).session.liveness.heartbeat_seconds == seconds


def test_silence_is_measured_by_the_heartbeats() -> None:
    world = workers(1800).run()
    world.disconnect("worker:7")
    for _ in range(4):
        for name in world.states:
            if name != "worker:7":
                world.beat(name)
        world.tick(4)
    assert not world.released
    world.tick(3)
    assert len(world.released) == 1


def test_a_silent_executor_is_replaced_and_fenced() -> None:
    world = workers().run()
    silent = world.executor("worker:1")
    world.disconnect("worker:1")
    world.wait(LOST_AFTER - 1)
    assert not world.stops
    world.wait(3)
    assert world.disconnected == ["worker:1"]
    assert silent.container.id in world.released
    assert world.stopped() == ["worker:0"]
    assert not world.register("worker:1", silent)
    world.restarted()
    assert world.generation == 2


def test_a_silent_executor_of_a_task_that_succeeded_does_not_matter() -> None:
    world = workers().run()
    world.end("worker:0")
    world.disconnect("worker:0")
    world.wait(LOST_AFTER + 5)
    assert not world.stops
    assert not world.outstanding
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_an_executor_that_falls_silent_between_two_generations_is_replaced() -> None:
    world = workers().run()
    world.end("worker:0")
    world.end("worker:1", exit_code=1)
    world.tick(6)
    world.start_all()
    world.end("worker:1", exit_code=2)
    world.obey_all()
    world.disconnect("worker:0")
    world.wait(LOST_AFTER + 5)
    world.run()
    assert world.generation == 3
    assert world.attempt("worker:0") == 2


# ---- steps ---------------------------------------------------------------------------------------------------------


def test_a_task_without_a_new_step_has_failed_and_writes_its_stacks() -> None:
    world = workers(stall=30).run()
    for step in range(4):
        world.wait(20)
        world.beat("worker:0", step)
        world.beat("worker:1", 2)
    assert [(stop.task, stop.stacks) for stop in world.stops] == [("worker:0", True), ("worker:1", True)]
    world.obey_all()
    world.start_all()
    assert world.generation == 2
    assert "reported no step after step 2" in world.noted("failed")[0]


def test_a_process_that_never_takes_a_step_has_failed_too() -> None:
    world = workers(stall=30).run()
    world.wait(32)
    assert not world.stops
    world.wait(2)
    assert len(world.stops) == 2


def test_tasks_that_report_nothing_are_not_expected_to_where_others_do() -> None:
    world = workers(stall=30).run()
    for step in range(10):
        world.beat("worker:0", step)
        world.wait(20)
    assert not world.stops


def test_parameter_servers_take_no_steps() -> None:
    world = World(job({"chief": 1, "ps": 1}, policy=RestartPolicy(), stall=30), ["chief"]).run()
    for step in range(10):
        world.beat("chief:0", step)
        world.wait(20)
    assert not world.stops


def test_steps_are_counted_from_the_start_of_the_process() -> None:
    world = workers(stall=30)
    world.grant_all()
    world.register_all()
    world.wait(60)  # it restores a large checkpoint
    world.start_all()
    world.wait(20)
    assert not world.stops


def test_a_stall_that_ends_the_job_is_seen_in_the_log_as_well() -> None:
    world = World(job({"worker": 1}, stall=30), ["worker"]).run()
    world.wait(34)
    assert [stop.stacks for stop in world.stops] == [True]
    world.wait(6)  # for stacks that do not come
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.kind is FailureKind.STALLED


COLLECTIVE = ('File "torch/distributed/distributed_c10d.py", line 9 in all_reduce', 'File "train.py", line 8 in step')
READS = ('File "socket.py", line 7 in readinto', 'File "train.py", line 5 in load')


def stalled(tasks: int) -> World:
    """A gang in which nothing moves, once its tasks were told to stop."""
    world = World(job({"worker": tasks}, stall=30), ["worker"]).run()
    world.wait(34)
    assert len(world.stops) == tasks
    assert world.session.state.verdict is None
    return world


def message_of(world: World) -> str:
    """The failure of a job that has been decided about."""
    assert world.session.state.verdict is not None
    world.complete_all()
    assert world.verdict.failure
    return world.verdict.failure.message


def test_the_rank_that_the_others_wait_for_is_named_with_its_stack() -> None:
    world = stalled(3)
    for name, frames in (("worker:0", COLLECTIVE), ("worker:2", READS), ("worker:1", COLLECTIVE)):
        assert world.session.state.verdict is None
        world.write_stacks(name, *frames)
    first, *rest = message_of(world).splitlines()
    assert first.startswith("worker:0 on node")
    assert first.endswith('; worker:2 at File "socket.py", line 7 in readinto, unlike 2 others')
    assert rest == [
        "worker:2 (process 4711, python train.py):",
        *(f"  {frame}" for frame in READS),
        "worker:0 (process 4711, python train.py), worker:1 (process 4711, python train.py):",
        *(f"  {frame}" for frame in COLLECTIVE),
    ]


def test_of_two_ranks_the_one_that_is_in_no_collective_operation_comes_first() -> None:
    world = stalled(2)
    world.write_stacks("worker:0", *COLLECTIVE)
    world.write_stacks("worker:1", *READS)
    assert "; worker:1 at " in message_of(world).splitlines()[0]


def test_stacks_that_do_not_come_are_not_waited_for_long() -> None:
    world = stalled(2)
    world.write_stacks("worker:0", *READS)
    world.wait(2)
    assert world.session.state.verdict is None
    world.wait(4)
    assert "; worker:0 at " in message_of(world)


def test_a_gang_that_has_stopped_without_stacks_starts_again_at_once() -> None:
    world = workers(stall=30).run()
    world.wait(34)
    world.write_stacks("worker:1", *READS)
    world.obey_all()
    assert "; worker:1 at " in world.noted("stalled")[0]
    assert "; worker:1 at " in world.noted("restarting")[0]
    world.start_all()
    assert world.generation == 2


def test_own_sleep_is_nobodys_stall() -> None:
    world = workers(stall=300).run()
    world.tick()
    world.tick(1000)
    assert not world.stops
    assert not world.released


# ---- the job's time ------------------------------------------------------------------------------------------------


def test_the_deadline_ends_the_job() -> None:
    world = World(job({"worker": 1}, deadline=EPOCH + 100 + 50, lifetime=1000), ["worker"]).run()
    world.wait(49)
    assert world.session.verdict is None
    world.wait(2)
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert "timeouts.deadline" in world.verdict.message
    assert world.states["worker:0"] is TaskState.STOPPED
