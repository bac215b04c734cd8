"""Tasks that begin as they come, end before the others, or may fail."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.reports import MOST_REPLACEMENTS
from tony_provider.runtime.am.session.restart_policy import RestartGroup
from tony_provider.runtime.am.session.restarts import ProcessStarts
from tony_provider.runtime.jobspec.model import (
    JobSpec,
    Milestone,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
    SuccessRule,
    TaskSpec,
    Tolerance,
)
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState


def pieces(number: int = 4, *, tasks: dict[str, int | TaskSpec] | None = None, **more: Any) -> JobSpec:
    timeouts = {key: more.pop(key) for key in ("queue", "replacement", "allocation") if key in more}
    spec = job(tasks or {"worker": number}, policy=more.pop("policy", None), **timeouts)
    return attrs.evolve(spec, start=StartRule.FIRST_COME, **more)


def first_come(number: int = 4, *, keeps: bool = True, **more: Any) -> World:
    return World(pieces(number, **more), ["worker"], alone=True, keeps=keeps)


def begin(world: World, name: str) -> None:
    """The cluster has room for one more, which is granted in the order of requests."""
    world.grant()
    world.register(name)
    world.start(name)


def told(world: World) -> str:
    return job_status.message(world.session, world.now)


def test_each_begins_as_soon_as_its_container_is_there() -> None:
    world = first_come(3)
    phases = [world.session.phase]
    begin(world, "worker:0")
    assert [*phases, world.session.phase] == [JobState.WAITING, JobState.RUNNING]
    assert world.states == {
        "worker:0": TaskState.RUNNING,
        "worker:1": TaskState.REQUESTED,
        "worker:2": TaskState.REQUESTED,
    }
    assert told(world) == "1 of 3 tasks running, 2 waiting for a container"
    begin(world, "worker:1")
    begin(world, "worker:2")
    assert world.generation == 1
    assert world.session.state.restarts == 0
    assert told(world) == "3 of 3 tasks running"


def test_ranks_are_everybody_s_though_others_are_not_there() -> None:
    world = first_come(3)
    begin(world, "worker:0")
    begin(world, "worker:1")
    (first, second) = (order.cluster.tasks for order in world.rendezvous)
    assert [(task.index, task.main) for task in first] == [(0, "node1:2000"), (1, ""), (2, "")]
    assert [(task.index, task.main) for task in second] == [(0, "node1:2000"), (1, "node2:2000"), (2, "")]


def test_all_go_on_from_one_checkpoint_that_is_looked_up_once() -> None:
    world = World(pieces(3), ["worker"], alone=True, answers=False)
    world.checkpoints.append(point(7, "store/step-7-0"))
    world.choose(1)
    for index in range(3):
        begin(world, f"worker:{index}")
    assert world.choices == [1]
    assert [order.resume.step for order in world.rendezvous if order.resume] == [7, 7, 7]
    assert not any(order.keep_checkpoints for order in world.rendezvous)


def test_whoever_has_succeeded_makes_room() -> None:
    world = first_come(2)
    begin(world, "worker:0")
    world.end("worker:0")
    assert world.shut_down() == ["worker:0"]
    world.complete(world.container("worker:0"))
    assert not world.held
    assert told(world) == "0 of 2 tasks running, 1 succeeded, 1 waiting for a container"
    begin(world, "worker:1")
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_container_is_kept_until_the_end_of_its_task_is_written_down() -> None:
    world = first_come(2, keeps=False)
    begin(world, "worker:0")
    world.end("worker:0")
    assert world.shut_down() == []
    world.keep_notes()
    assert world.shut_down() == ["worker:0"]


def test_a_straggler_does_not_hold_the_others_containers_in_a_gang_of_independent_tasks() -> None:
    world = World(job({"worker": 3}), ["worker"], alone=True).run()
    world.end("worker:0")
    world.end("worker:2")
    assert world.shut_down() == ["worker:0", "worker:2"]
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_gang_keeps_what_it_may_need_again() -> None:
    world = World(job({"worker": 2}), ["worker"]).run()
    world.end("worker:0")
    assert world.shut_down() == []


def test_a_task_that_was_let_go_runs_again_where_the_gang_does() -> None:
    tasks: dict[str, int | TaskSpec] = {"worker": 1, "helper": task_type(1, restart=RestartScope.TASK)}
    world = World(job(tasks, policy=RestartPolicy()), ["worker"]).run()
    world.end("helper:0")
    world.complete(world.container("helper:0"))
    assert world.shut_down() == ["helper:0"]
    world.end("worker:0", exit_code=1)
    world.restarted()
    assert world.states == {"worker:0": TaskState.RUNNING, "helper:0": TaskState.RUNNING}
    world.master_dies()
    world.come_back()
    assert world.states == {"worker:0": TaskState.RUNNING, "helper:0": TaskState.RUNNING}


def test_the_next_master_runs_nothing_again_that_is_over() -> None:
    world = first_come(3, tolerated_failures=Tolerance("1"))
    begin(world, "worker:0")
    world.end("worker:0", model_dir="store/model")
    world.complete(world.container("worker:0"))
    begin(world, "worker:1")
    world.end("worker:1", exit_code=3)
    world.complete(world.container("worker:1"))
    begin(world, "worker:2")
    world.master_dies()
    world.come_back()
    assert world.states == {
        "worker:0": TaskState.SUCCEEDED,
        "worker:1": TaskState.FAILED,
        "worker:2": TaskState.RUNNING,
    }
    assert not world.outstanding
    status = job_status.job_status(
        world.session, application_id="a", am_attempt=2, started_ms=0, now=world.now, now_ms=1
    )
    assert status.model_dir == "store/model"
    assert len(status.warnings) == 1
    world.end("worker:2")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_an_executor_that_was_let_go_is_refused_by_the_next_master() -> None:
    world = first_come(2)
    begin(world, "worker:0")
    world.end("worker:0")
    begin(world, "worker:1")
    world.master_dies()
    executor = world.executor_of("worker:0")
    assert world.session.refusal("worker:0", 1, executor.container.id) == "worker:0 has ended"
    world.register("worker:1", world.executor_of("worker:1"))
    world.tick(1.0)
    assert world.session.phase is JobState.RUNNING


def test_the_next_master_begins_those_that_had_not_begun_without_a_failure() -> None:
    world = first_come(3, policy=RestartPolicy(budget=0))
    begin(world, "worker:0")
    world.master_dies()
    world.come_back()
    assert len(world.outstanding) == 2
    begin(world, "worker:1")
    begin(world, "worker:2")
    assert world.session.state.restarts == 0
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_the_next_master_finds_nobody() -> None:
    world = first_come(3)
    begin(world, "worker:0")
    world.end("worker:0")
    world.complete(world.container("worker:0"))
    world.master_dies()
    world.tick(100.0)
    world.tick(1.0)
    assert len(world.outstanding) == 2
    begin(world, "worker:1")
    begin(world, "worker:2")
    assert world.generation == 2
    tasks = world.rendezvous[-1].cluster.tasks
    assert [task.main for task in tasks] == ["", "node2:2000", "node3:2000"]


def test_a_lost_one_starts_again_alone_and_nobody_gives_back() -> None:
    world = first_come(3, policy=RestartPolicy(), replacement=10.0)
    begin(world, "worker:0")
    begin(world, "worker:1")
    world.lose("worker:0")
    world.wait(60.0)
    assert world.session.phase is JobState.RUNNING
    assert world.task("worker:1").state is TaskState.RUNNING
    assert len(world.outstanding) == 2
    assert "given_back" not in {note.event for note in world.notes}


def test_one_that_is_lost_before_anything_has_begun_is_asked_for_again() -> None:
    world = first_come(2, replacement=10.0, allocation=5.0)
    world.complete(world.grant(), ExitReason.LOST)
    world.wait(60.0)
    assert not world.finished
    world.grant_all()
    world.register_all()
    world.start_all()
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_no_room_for_the_first_one() -> None:
    world = first_come(2, queue=30.0)
    world.wait(31.0)
    assert world.verdict.failure
    assert world.verdict.failure.kind is FailureKind.QUEUE_TIMEOUT


def test_the_queue_may_make_the_others_wait() -> None:
    world = first_come(2, queue=30.0)
    begin(world, "worker:0")
    world.wait(100.0)
    assert world.session.phase is JobState.RUNNING


# ---- tolerated failures ----------------------------------------------------------------------------------------


def test_some_may_fail() -> None:
    world = first_come(3, tolerated_failures=Tolerance("1"))
    for index, code in enumerate((0, 3, 0)):
        begin(world, f"worker:{index}")
        world.end(f"worker:{index}", exit_code=code)
        world.complete(world.container(f"worker:{index}"))
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert "1 of 3 tasks failed, within tolerated_failures" in world.verdict.message
    assert world.states["worker:1"] is TaskState.FAILED
    assert world.session.state.warnings == ["worker:1 on node2:1 ended with exit code 3"]


def test_a_share_of_them_may_fail() -> None:
    assert pieces(40, tolerated_failures=Tolerance("5%")).most_failures == 2
    assert pieces(39, tolerated_failures=Tolerance("5%")).most_failures == 1
    assert pieces(10, tolerated_failures=Tolerance("5%")).most_failures == 0


def test_one_failure_too_many() -> None:
    world = first_come(3, tolerated_failures=Tolerance("1"))
    for index in range(2):
        begin(world, f"worker:{index}")
        world.end(f"worker:{index}", exit_code=3)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.task == "worker:1"
    assert "more failures than tolerated_failures allows (1)" in failure.message


def test_restarts_come_before_tolerance() -> None:
    world = first_come(2, tolerated_failures=Tolerance("1"), policy=RestartPolicy(budget=1))
    begin(world, "worker:0")
    world.end("worker:0", exit_code=3)
    world.tick()
    world.start("worker:0")
    states = [world.states["worker:0"]]
    world.end("worker:0", exit_code=3)
    world.tick()
    assert [*states, world.states["worker:0"]] == [TaskState.RUNNING, TaskState.FAILED]
    assert world.session.phase is JobState.RUNNING


@pytest.mark.parametrize("scope", [RestartScope.NEVER, RestartScope.TASK])
def test_two_failures_at_once_are_two(scope: RestartScope) -> None:
    tasks: dict[str, int | TaskSpec] = {"worker": task_type(3, restart=scope)}
    world = first_come(tasks=tasks, tolerated_failures=Tolerance("2"))
    for index in range(3):
        begin(world, f"worker:{index}")
    for index in range(2):
        world.end(f"worker:{index}", signal=9)  # in doubt for a moment: the cluster may know better
    world.wait(10.0)
    world.end("worker:2")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert "2 of 3 tasks failed" in world.verdict.message


@pytest.mark.parametrize("success", [None, SuccessRule.ANY])
def test_a_job_of_failures_has_failed(success: SuccessRule | None) -> None:
    world = first_come(2, tolerated_failures=Tolerance("100%"), success=success)
    for index in range(2):
        begin(world, f"worker:{index}")
        world.end(f"worker:{index}", exit_code=3 + index)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.failure
    assert world.verdict.failure.exit_code == 3
    assert "all deciding tasks have failed" in world.verdict.failure.message


def test_a_side_car_that_was_given_up_stays_so_at_the_next_master() -> None:
    world = World(job({"worker": 1, "sidecar": 1}), ["worker"]).run()
    world.end("sidecar:0", exit_code=3)
    assert world.states["sidecar:0"] is TaskState.FAILED
    world.complete(world.container("sidecar:0"))
    world.master_dies()
    world.come_back()
    assert world.states["sidecar:0"] is TaskState.FAILED
    assert world.session.phase is JobState.RUNNING
    assert not world.outstanding


@pytest.mark.parametrize("start", list(StartRule))
def test_none_of_them_has_begun_and_all_have_failed(start: StartRule) -> None:
    spec = attrs.evolve(job({"worker": 2}), start=start, tolerated_failures=Tolerance("100%"))
    world = World(spec, ["worker"], alone=True)
    for container_id in [world.grant(), world.grant()]:
        world.complete(container_id, 1)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED


def test_what_was_prepared_is_no_success_of_those_that_all_failed() -> None:
    world = first_come(tasks={"prepare": 1, "worker": 2}, tolerated_failures=Tolerance("100%")).run()
    world.end("prepare:0")
    world.run()
    world.end("worker:0", exit_code=3)
    world.end("worker:1", exit_code=3)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED


def test_nobody_waits_for_the_success_of_those_that_all_failed() -> None:
    export = task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})
    world = first_come(tasks={"worker": 2, "export": export}, tolerated_failures=Tolerance("100%")).run()
    world.end("worker:0", exit_code=3)
    world.end("worker:1", exit_code=4)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.message.startswith("export waits for worker, and worker:0 was given up: worker:0 on node1:1 ended")
    assert failure.exit_code == 3


def test_a_tolerated_failure_holds_nobody_up() -> None:
    monitor = task_type(1, role=Role.SIDECAR, after={"worker": Milestone.STARTED})
    world = first_come(tasks={"worker": 2, "monitor": monitor}, tolerated_failures=Tolerance("1"))
    begin(world, "worker:0")
    world.end("worker:0", exit_code=3)
    begin(world, "worker:1")
    world.run()
    assert world.states["monitor:0"] is TaskState.RUNNING


def test_one_that_was_given_up_stays_so_when_the_gang_starts_again() -> None:
    tasks: dict[str, int | TaskSpec] = {
        "chief": task_type(1, restart=RestartScope.GANG),
        "worker": task_type(2, restart=RestartScope.TASK),
    }
    spec = job(tasks, policy=RestartPolicy(permanent_exit_codes=[9]))
    world = World(attrs.evolve(spec, tolerated_failures=Tolerance("1")), ["chief"]).run()
    world.end("worker:1", exit_code=9)
    world.end("chief:0", exit_code=1)
    assert not world.outstanding
    world.restarted()
    assert world.states == {
        "chief:0": TaskState.RUNNING,
        "worker:0": TaskState.RUNNING,
        "worker:1": TaskState.FAILED,
    }


def test_one_that_was_to_start_again_and_was_given_up_stays_so_at_the_next_master() -> None:
    world = World(
        attrs.evolve(job({"worker": 2}, policy=RestartPolicy()), tolerated_failures=Tolerance("1")),
        ["worker"],
        alone=True,
    ).run()
    world.lose("worker:1")
    for _ in range(MOST_REPLACEMENTS):
        world.complete(world.grant(), ExitReason.LOST)
    assert world.task("worker:1").given_up
    world.master_dies()
    world.come_back()
    assert not world.outstanding
    assert world.session.state.restarts == 1


def test_thousands_that_wait_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = first_come(500)
    begin(world, "worker:0")
    looked_at: list[RestartGroup] = []
    monkeypatch.setattr(ProcessStarts, "advance", lambda self, group, now: looked_at.append(group))
    world.tick()
    assert len(looked_at) <= 1
