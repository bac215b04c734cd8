"""Task types that wait for others."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.recovery import MOST_WAIT
from tony_provider.runtime.jobspec.model import (
    Milestone,
    ReadinessProbe,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
    SuccessRule,
    TaskSpec,
    Tolerance,
)
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

STARTED, SUCCEEDED = Milestone.STARTED, Milestone.SUCCEEDED


def world_of(tasks: dict[str, int | TaskSpec], decisive: str = "worker", *, alone: bool = False, **how: Any) -> World:
    return World(job(tasks, **how), [decisive], alone=alone)


def asked(world: World) -> int:
    return len(world.outstanding)


def told(world: World) -> str:
    return job_status.message(world.session, world.now)


def prepared(**how: Any) -> World:
    """A gang of two for which something was prepared."""
    world = world_of({"prepare": 1, "worker": 2, "sidecar": 1}, **how).run()
    world.end("prepare:0")
    return world


@pytest.mark.parametrize("alone", [False, True])
def test_all_others_wait_for_prepare(alone: bool) -> None:
    world = world_of({"prepare": 1, "worker": 2}, alone=alone)
    assert asked(world) == 1
    world.run()
    assert world.states["prepare:0"] is TaskState.RUNNING
    assert told(world) == "1 of 3 tasks running; worker waits for prepare to succeed"
    world.end("prepare:0")
    assert world.shut_down() == ["prepare:0"]
    assert asked(world) == 2
    world.run()
    assert world.states == {
        "prepare:0": TaskState.SUCCEEDED,
        "worker:0": TaskState.RUNNING,
        "worker:1": TaskState.RUNNING,
    }
    world.end("worker:0")
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_gang_is_brought_together_though_it_has_waited() -> None:
    world = prepared(allocation=10.0)
    assert world.session.phase is JobState.WAITING
    world.grant()
    world.register_all()
    assert "worker:0" not in world.starts
    world.wait(11.0)
    assert world.noted("given_back")
    world.wait(20.0)
    world.run()
    assert world.states["worker:1"] is TaskState.RUNNING
    assert world.states["prepare:0"] is TaskState.SUCCEEDED


def test_what_is_prepared_is_not_prepared_again() -> None:
    world = prepared(policy=RestartPolicy()).run()
    world.end("worker:0", exit_code=1)
    world.restarted()
    assert world.states["worker:0"] is TaskState.RUNNING
    assert world.states["prepare:0"] is TaskState.SUCCEEDED
    assert world.starts["prepare:0"] == 1


def test_a_preparation_that_fails_is_the_job_s_failure() -> None:
    world = world_of({"prepare": 1, "worker": 2}).run()
    world.end("prepare:0", exit_code=4)
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.task == "prepare:0"
    assert set(world.states.values()) == {TaskState.FAILED, TaskState.STOPPED}


def test_a_preparation_may_start_again() -> None:
    world = world_of({"prepare": 1, "worker": 2}, policy=RestartPolicy()).run()
    world.end("prepare:0", exit_code=4)
    world.tick()
    world.start("prepare:0")
    assert world.states["prepare:0"] is TaskState.RUNNING
    assert world.states["worker:0"] is TaskState.REQUESTED
    assert asked(world) == 0


def test_a_service_is_up_before_those_that_use_it() -> None:
    world = world_of({"sidecar": 1, "worker": task_type(2, after={"sidecar": STARTED})})
    world.grant_all()
    world.register_all()
    assert asked(world) == 0
    world.start("sidecar:0")
    assert asked(world) == 2
    world.run()
    assert set(world.states.values()) == {TaskState.RUNNING}
    assert world.rendezvous[-1].cluster.task("sidecar", 0).main == "node1:2000"


def test_a_service_that_is_lost_while_the_gang_waits_comes_back() -> None:
    world = world_of({"sidecar": 1, "worker": task_type(2, after={"sidecar": STARTED})}, policy=RestartPolicy()).run()
    assert world.session.phase is JobState.WAITING
    world.lose("sidecar:0")
    assert asked(world) == 3
    world.run()
    world.tick()
    world.start_all()
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_a_service_that_was_given_up_ends_the_wait() -> None:
    world = world_of({"sidecar": 1, "worker": task_type(2, after={"sidecar": STARTED})})
    world.grant_all()
    world.register_all()
    world.end("sidecar:0", exit_code=5)
    world.complete_all()
    assert world.verdict.failure
    assert "worker waits for sidecar, and sidecar:0 was given up" in world.verdict.message


def test_one_more_step_when_training_is_done() -> None:
    tasks: dict[str, int | TaskSpec] = {
        "worker": 2,
        "export": task_type(1, role=Role.ONCE, after={"worker": SUCCEEDED}),
    }
    world = world_of(tasks).run()
    world.end("worker:0")
    assert asked(world) == 0
    assert world.shut_down() == []
    world.end("worker:1")
    assert asked(world) == 1
    assert world.shut_down() == ["worker:0", "worker:1"]  # a GPU is not for waiting
    world.run()
    world.end("export:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_waiting_has_an_end() -> None:
    world = world_of({"prepare": 1, "worker": 2}, dependency=60.0).run()
    world.wait(70.0)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.DEPENDENCY_TIMEOUT
    expected = "dependencies not met within 60 s (timeouts.dependency): worker waits for prepare to succeed"
    assert failure.message == expected


def test_the_next_master_goes_on_with_the_stage() -> None:
    world = world_of({"prepare": 1, "worker": 2}).run()
    world.master_dies()
    world.come_back()
    assert asked(world) == 0
    world.end("prepare:0")
    world.run()
    assert world.starts == {"prepare:0": 1, "worker:0": 1, "worker:1": 1}
    world.master_dies()
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    assert asked(world) == 0


def test_the_next_master_knows_what_was_prepared() -> None:
    world = prepared()
    world.grant()
    world.master_dies()
    world.complete(world.container("prepare:0") if world.task("prepare:0").container else "container_1_0001_01_000001")
    world.wait(100.0)
    world.run()
    assert world.starts["prepare:0"] == 1
    assert world.states["worker:0"] is TaskState.RUNNING


def test_a_lost_gang_is_asked_for_again_and_nothing_else() -> None:
    world = prepared(policy=RestartPolicy(), replacement=10.0).run()
    world.lose("worker:1", ExitReason.LOST)
    world.obey_all()
    world.wait(15.0)
    assert world.session.phase is JobState.WAITING
    world.wait(130.0)
    world.run()
    assert world.states["worker:1"] is TaskState.RUNNING
    assert world.starts["prepare:0"] == 1


def test_a_service_is_ready_before_those_that_use_it() -> None:
    probe = ReadinessProbe(port=0)
    world = world_of({"sidecar": task_type(1, ready=probe), "worker": task_type(2, after={"sidecar": Milestone.READY})})
    world.run()
    assert told(world) == "1 of 3 tasks running; worker waits for sidecar to be ready"
    world.serve("sidecar:0")
    world.tick()
    assert asked(world) == 2
    world.run()
    assert set(world.states.values()) == {TaskState.RUNNING}
    assert world.noted("ready") == ["its readiness probe has succeeded"]


def test_a_service_that_starts_again_is_not_ready_yet() -> None:
    tasks: dict[str, int | TaskSpec] = {
        "sidecar": task_type(1, ready=ReadinessProbe(file="up")),
        "worker": task_type(2, after={"sidecar": Milestone.READY}),
    }
    world = world_of(tasks, policy=RestartPolicy()).run()
    world.serve("sidecar:0")
    world.end("sidecar:0", exit_code=1)
    world.tick()
    world.start("sidecar:0")
    world.tick()
    assert asked(world) == 0
    world.serve("sidecar:0")
    world.tick()
    assert asked(world) == 2


def test_what_was_ready_before_it_started_again_does_not_count() -> None:
    probe = ReadinessProbe(port=0)
    tasks: dict[str, int | TaskSpec] = {
        "sidecar": task_type(1, ready=probe),
        "worker": task_type(2, after={"sidecar": Milestone.READY}),
    }
    world = world_of(tasks, policy=RestartPolicy())
    world.run()
    world.end("sidecar:0", exit_code=1)
    world.tick()
    world.serve("sidecar:0")  # on its way since before the end
    world.start("sidecar:0")
    world.tick()
    assert asked(world) == 0


def test_an_evaluator_that_has_not_begun_at_the_end_is_not_waited_for() -> None:
    tasks: dict[str, int | TaskSpec] = {
        "worker": 1,
        "sidecar": task_type(1, ready=ReadinessProbe(port=0)),
        "evaluator": task_type(1, after={"sidecar": Milestone.READY}),
    }
    world = world_of(tasks).run()
    world.end("worker:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


@pytest.mark.parametrize("success", [None, SuccessRule.ANY])
def test_the_job_may_be_over_while_a_stage_waits_for_its_containers(success: SuccessRule | None) -> None:
    more = task_type(2, after={"worker": STARTED}, decides=bool(success))
    world = World(attrs.evolve(job({"worker": 1, "more": more}), success=success), ["worker", "more"], alone=True)
    world.grant()
    world.register("worker:0")
    world.start("worker:0")
    assert world.session.phase is JobState.WAITING
    world.end("worker:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_the_gang_starts_again_while_one_that_goes_along_waits() -> None:
    evaluator = task_type(1, restart=RestartScope.GANG, after={"sidecar": Milestone.READY})
    tasks: dict[str, int | TaskSpec] = {"worker": 1, "sidecar": 1, "evaluator": evaluator}
    world = world_of(tasks, policy=RestartPolicy()).run()
    world.end("worker:0", exit_code=1)
    world.tick()
    world.start("worker:0")
    assert world.states["worker:0"] is TaskState.RUNNING


def served(**how: Any) -> World:
    """A gang that has begun after a service."""
    tasks: dict[str, int | TaskSpec] = {"sidecar": 1, "worker": task_type(2, after={"sidecar": STARTED})}
    return world_of(tasks, policy=RestartPolicy(), **how).run().run()


def test_a_gang_that_is_given_back_does_not_begin_before_its_service() -> None:
    world = served(replacement=10.0)
    world.lose("worker:1")
    world.obey_all()
    world.wait(140.0)
    assert asked(world) == 2
    assert world.states["sidecar:0"] is TaskState.RUNNING
    world.run()
    assert world.states["worker:1"] is TaskState.RUNNING


def test_one_after_the_other_again_where_nobody_comes_back() -> None:
    world = served()
    for container_id in world.held:
        world.completed.add(container_id)
        world.executors.pop(container_id)
    world.master_dies()
    world.wait(100.0)
    assert asked(world) == 1
    world.run()
    assert world.states["worker:0"] is TaskState.REQUESTED
    world.run()
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_what_has_succeeded_stays_out_of_the_next_stage_though_its_container_is_not_given_back_yet() -> None:
    more = task_type(2, after={"worker": STARTED})
    world = World(job({"worker": 2, "more": more}), ["worker", "more"], alone=True, keeps=False).run()
    world.end("worker:0")
    world.end("worker:1")
    world.run()
    assert world.starts == {"worker:0": 1, "worker:1": 1, "more:0": 1, "more:1": 1}


def waiting_for_more() -> World:
    """A stage that runs, and one whose containers are asked for."""
    more = task_type(2, after={"worker": STARTED})
    world = World(job({"worker": 2, "more": more}, policy=RestartPolicy()), ["worker", "more"], alone=True).run()
    assert world.session.phase is JobState.WAITING
    return world


def begun_together(world: World) -> bool:
    world.run()
    return set(world.states.values()) == {TaskState.RUNNING}


def test_what_fails_while_a_later_stage_waits_for_containers_starts_again_at_once() -> None:
    world = waiting_for_more()
    world.end("worker:0", exit_code=1)
    world.tick()
    world.start("worker:0")
    assert (world.states["worker:0"], asked(world)) == (TaskState.RUNNING, 2)
    assert begun_together(world)
    assert world.starts == {"worker:0": 2, "worker:1": 1, "more:0": 1, "more:1": 1}


def test_what_is_lost_while_a_later_stage_waits_for_containers_starts_again_at_once() -> None:
    world = waiting_for_more()
    world.commit(3)
    world.lose("worker:0")
    world.grant(max(world.outstanding))
    world.register("worker:0")
    world.start("worker:0")
    assert (world.states["worker:0"], asked(world)) == (TaskState.RUNNING, 2)
    assert world.rendezvous[-1].resume == point(3, "store/step-3-1")
    world.master_dies()
    world.come_back()
    assert world.states["worker:0"] is TaskState.RUNNING
    world.wait(70.0)
    assert begun_together(world)
    assert world.starts == {"worker:0": 2, "worker:1": 1, "more:0": 1, "more:1": 1}


def test_a_service_comes_back_while_those_that_use_it_wait_for_containers() -> None:
    world = world_of({"sidecar": 1, "worker": task_type(2, after={"sidecar": STARTED})}, policy=RestartPolicy()).run()
    world.lose("sidecar:0")
    world.grant(max(world.outstanding))
    world.register("sidecar:0")
    world.start("sidecar:0")
    assert (world.states["sidecar:0"], asked(world)) == (TaskState.RUNNING, 2)
    assert begun_together(world)


def test_what_was_prepared_counts_though_its_node_is_lost_at_once() -> None:
    world = world_of({"prepare": 1, "worker": 2}).run()
    world.end("prepare:0", settles=False)
    world.lose("prepare:0")
    world.run()
    world.master_dies()
    world.come_back()
    world.wait(70.0)
    assert world.states["prepare:0"] is TaskState.SUCCEEDED
    assert asked(world) == 0


def test_what_was_prepared_is_over_though_its_node_is_lost_before_that_is_written_down() -> None:
    tasks: dict[str, int | TaskSpec] = {"prepare": 1, "worker": 2}
    world = World(job(tasks, replacement=10.0, policy=RestartPolicy()), ["worker"], keeps=False).run()
    world.end("prepare:0")
    world.lose("prepare:0")
    world.run()
    world.lose("worker:1")
    world.obey_all()
    world.wait(140.0)
    world.run()
    assert world.states["worker:1"] is TaskState.RUNNING
    assert world.starts["prepare:0"] == 1


def first_come(tolerated: str = "100%") -> World:
    """Two workers whose containers are there, and others that wait for them."""
    tasks = {
        "worker": task_type(2, restart=RestartScope.TASK),
        "more": task_type(2, restart=RestartScope.TASK, after={"worker": STARTED}),
    }
    spec = attrs.evolve(job(tasks), start=StartRule.FIRST_COME, tolerated_failures=Tolerance(tolerated))
    world = World(spec, ["worker", "more"], alone=True)
    world.grant_all()
    return world


@pytest.mark.parametrize("master_dies", [False, True])
def test_a_stage_whose_tasks_were_all_given_up_before_one_began_ends_the_job(master_dies: bool) -> None:
    world = first_come()
    world.lose("worker:0", 1)
    if master_dies:
        world.master_dies()
        world.come_back()
    assert not world.session.verdict
    world.lose("worker:1", 1)
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.message.startswith("more waits for worker, and worker:0 was given up: the container of")
    world.complete_all()
    assert not world.outstanding


def test_a_stage_begins_with_those_that_are_left() -> None:
    world = first_come()
    world.lose("worker:0", 1)
    world.register("worker:1")
    assert asked(world) == 0
    world.start("worker:1")
    assert asked(world) == 2
    world.run()
    assert world.states["more:1"] is TaskState.RUNNING


def exported(**how: Any) -> World:
    """Workers that have succeeded, and what comes after them runs."""
    export = task_type(1, role=Role.ONCE, after={"worker": SUCCEEDED})
    world = world_of({"ps": 1, "worker": 2, "export": export}, policy=RestartPolicy(), **how).run()
    world.end("worker:0")
    world.end("worker:1")
    world.run()
    assert world.states["export:0"] is TaskState.RUNNING
    return world


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("master_dies", [False, True])
def test_parameter_servers_that_fail_after_the_workers_have_succeeded_train_nothing_again(
    lost: bool, master_dies: bool
) -> None:
    world = exported()
    if master_dies:
        world.master_dies()
        world.come_back()
    if lost:
        world.lose("ps:0")
    else:
        world.end("ps:0", exit_code=1)
    world.tick()
    assert asked(world) == 0
    assert not world.noted("restarting")
    assert world.states["worker:0"] is TaskState.SUCCEEDED
    world.end("export:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_parameter_server_that_is_lost_with_the_master_trains_nothing_again() -> None:
    world = exported()
    world.lose("worker:0")
    world.lose("worker:1")
    world.master_dies()
    world.lose_unheard("ps:0")
    world.come_back()
    world.wait(100.0)
    assert world.session.phase is JobState.RUNNING
    assert (world.starts["worker:0"], asked(world)) == (1, 0)
    world.end("export:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_later_stage_begins_though_a_parameter_server_is_lost_while_masters_change(comes_back: bool) -> None:
    """Seen: its tasks waited for the address of the parameter server for ever."""
    export = task_type(1, role=Role.ONCE, after={"worker": SUCCEEDED})
    world = world_of({"ps": 1, "worker": 1, "export": export}).run()
    if comes_back:
        world.end("worker:0")
    world.master_dies()
    for name in ("worker:0", *(("ps:0",) if comes_back else ())):
        world.register(name, world.executor_of(name))
    if comes_back:
        world.lose("ps:0")
    else:
        world.end("worker:0")
        world.lose_unheard("ps:0")
    world.wait(MOST_WAIT)
    world.run()
    assert world.states["ps:0"] is TaskState.LOST
    world.end("export:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_resumed_stage_asks_for_no_parameter_server_whose_workers_have_succeeded() -> None:
    """Seen: the request was for a task that had ended, so its container was never used."""
    export = task_type(1, role=Role.ONCE, after={"worker": SUCCEEDED})
    ps = task_type(1, restart=RestartScope.TASK)
    world = world_of({"ps": ps, "worker": 1, "export": export}).run()
    world.end("worker:0")
    world.run()
    world.suspend()
    world.end("export:0", exit_code=143, stopped=True)
    world.wait(MOST_WAIT)
    world.resume()
    assert asked(world) == 1


def test_parameter_servers_may_end_once_the_workers_have_succeeded() -> None:
    world = exported()
    world.end("ps:0")
    world.wait(100.0)
    assert world.session.phase is JobState.RUNNING
    world.end("export:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_how_many_were_granted_counts_those_that_were_asked_for() -> None:
    world = world_of(
        {"worker": 2, "export": task_type(5, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})},
        policy=RestartPolicy(),
        replacement=20,
    ).run()
    world.lose("worker:0")
    world.obey_all()
    world.wait(25)
    assert "only 1 of 2 containers were granted" in world.status.message
