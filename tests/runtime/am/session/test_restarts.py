"""What starts again after a failure, with what, when, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.resource_manager import ExitReason, NodesCounted
from tony_provider.runtime.am.session.actions import StopProcess
from tony_provider.runtime.am.session.restart_policy import DOUBT
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import Duration, Memory, MirrorScope, RestartPolicy, RestartScope
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

WORKERS = {"worker": 3}
PS_JOB = {"chief": 1, "ps": 1, "worker": 2}
ALL_ROLES = {"chief": 1, "worker": 1, "evaluator": 1, "sidecar": 1}


def policy(**how: Any) -> RestartPolicy:
    return RestartPolicy(**{"backoff": Duration(5), "max_backoff": Duration(15), **how})


def workers(tasks: dict[str, Any] | None = None, *, mirror: MirrorScope = MirrorScope.LEADER, **how: Any) -> World:
    return World(job(tasks or WORKERS, policy=policy(**how), mirror=mirror, grace=10, checkpoint=20), ["worker"])


def all_roles(**how: Any) -> World:
    return World(job(ALL_ROLES, policy=policy(**how), evaluator=40), ["chief", "worker"])


def standalone(**how: Any) -> World:
    return World(job(WORKERS, policy=policy(**how)), ["worker"], alone=True)


# ---- a user process dies -------------------------------------------------------------------------------------------


def test_gang_starts_again_in_the_same_containers_from_the_newest_checkpoint() -> None:
    world = workers().run()
    assert world.commit(10) is None
    containers = {name: world.container(name) for name in world.states}
    world.end("worker:1", exit_code=1)
    assert world.stops == [
        StopProcess(name, 1, 1, 10, 20, "worker:1 on node2:1 ended with exit code 1")
        for name in ("worker:0", "worker:2")
    ]
    assert world.session.phase is JobState.RESTARTING
    assert world.commit(20) is None  # the last copy of what there was
    world.obey_all()
    assert world.generation == 2
    sent = world.rendezvous[-1]
    assert sent.resume == point(20, "store/step-20-1")
    assert sent.starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}
    assert not sent.keep_checkpoints
    assert {name: world.container(name) for name in world.states} == containers
    assert not world.outstanding
    world.start_all()
    assert set(world.states.values()) == {TaskState.RUNNING}
    assert world.session.state.restarts == 1


def test_no_time_needs_to_pass_after_the_first_failure() -> None:
    world = workers({"worker": 1}).run()
    world.end("worker:0", exit_code=1)
    assert world.generation == 2


def test_the_last_copies_of_checkpoints_are_waited_for() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.obey("worker:2")
    world.obey("worker:0", settles=False)
    assert world.choices == [1]
    assert world.states["worker:0"] is TaskState.REGISTERED
    world.commit(7)
    world.settle("worker:0")
    assert world.rendezvous[-1].resume == point(7, "store/step-7-1")


def test_last_copies_that_take_too_long_are_given_up() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.obey("worker:2")
    copying = world.executor("worker:0")
    world.obey("worker:0", settles=False)
    world.wait(10 + 20 + 5 + 1)
    assert world.generation == 2
    assert copying.start == 2


def test_nothing_of_a_generation_is_committed_once_the_next_ones_resume_point_is_being_chosen() -> None:
    world = workers().run()
    world.answers = False
    world.end("worker:1", exit_code=1)
    world.obey_all()
    assert world.choices[-1] == 2
    assert world.commit(30)
    world.choose(2)
    assert world.commit(30) is None  # by the new generation


def test_an_executor_that_does_not_stop_its_process_is_replaced() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.obey("worker:2")
    container = world.container("worker:0")
    world.wait(10 + 20 + 5 + 1)
    assert container in world.released
    assert world.generation == 1
    world.run()
    assert world.generation == 2
    assert world.attempt("worker:0") == 2


def test_an_executor_that_was_cut_off_is_told_again_to_stop() -> None:
    world = workers().run()
    world.disconnect("worker:0")
    world.end("worker:1", exit_code=1)
    assert world.stopped() == ["worker:2"]
    world.register("worker:0")
    world.obey_all()
    assert world.generation == 2


def test_everybody_of_the_cluster_starts_again_and_evaluators_and_side_cars_go_on() -> None:
    world = all_roles().run()
    world.end("worker:0", exit_code=1)
    world.obey_all()
    assert world.rendezvous[-1].starts == {"chief:0": 2, "worker:0": 2}
    assert world.states["evaluator:0"] is TaskState.RUNNING
    assert {f"{task.type}:{task.index}" for task in world.rendezvous[-1].cluster.tasks} == set(world.states)


def test_tasks_that_had_succeeded_start_again_with_their_gang() -> None:
    world = workers().run()
    world.end("worker:0")
    world.lose("worker:0")
    assert not world.outstanding
    world.end("worker:1", exit_code=1)
    assert len(world.outstanding) == 1
    world.restarted()
    assert world.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}


def test_the_job_succeeds_after_a_restart() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    for name in world.states:
        world.end(name)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_success_that_was_on_its_way_counts() -> None:
    world = World(job(PS_JOB, policy=policy()), ["chief"]).run()
    world.end("worker:0", exit_code=1)
    world.end("chief:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


@pytest.mark.parametrize("name", ["chief:0", "ps:0", "worker:1"])
def test_any_task_of_the_cluster_takes_its_gang_along(name: str) -> None:
    world = World(job(PS_JOB, policy=policy()), ["chief"]).run()
    world.end(name, exit_code=1)
    world.restarted()
    assert world.generation == 2


def test_a_process_that_was_killed_waits_shortly_for_the_containers_end() -> None:
    world = workers().run()
    world.end("worker:1", signal=9)
    world.obey_all()
    assert world.generation == 1
    world.tick(DOUBT)
    assert world.generation == 2


def test_a_process_that_was_killed_with_its_container_is_no_failure_of_the_job() -> None:
    world = workers(budget=0).run()
    world.end("worker:1", signal=15, stopped=True)
    world.disconnect("worker:1")
    world.obey_all()
    world.tick(2)
    assert world.generation == 1
    world.lose("worker:1", ExitReason.PREEMPTED)
    world.run()
    assert world.generation == 2
    assert world.attempt("worker:1") == 2


# ---- a container is lost -------------------------------------------------------------------------------------------


def test_only_the_lost_container_is_replaced() -> None:
    world = workers().run()
    world.commit(5)
    kept = [world.container(name) for name in ("worker:0", "worker:2")]
    world.lose("worker:1", 137)
    assert len(world.outstanding) == 1
    assert world.stopped() == ["worker:0", "worker:2"]
    world.obey_all()
    assert world.choices == [1, 2]
    assert world.generation == 1
    world.run()
    assert world.generation == 2
    assert world.rendezvous[-1].resume == point(5, "store/step-5-1")
    assert [world.container(name) for name in ("worker:0", "worker:2")] == kept
    assert world.rendezvous[-1].cluster.task("worker", 1).host == "node0"


def test_another_container_lost_meanwhile_is_replaced_and_costs_no_other_restart() -> None:
    world = workers(budget=1).run()
    world.lose("worker:1")
    world.lose("worker:2")
    world.grant_all()
    world.lose("worker:1")
    world.restarted()
    assert world.generation == 2
    assert (world.attempt("worker:1"), world.attempt("worker:2")) == (3, 2)


def test_a_container_that_is_lost_again_and_again_before_its_process_ran_ends_the_job() -> None:
    world = workers().run()
    world.lose("worker:1")
    for _ in range(3):
        world.grant_all()
        world.lose("worker:1", 65)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.LAUNCH
    assert "exit code 65" in failure.message


@pytest.mark.parametrize("exit_code", [137, 143])
def test_a_container_that_is_killed_before_its_executor_has_registered_is_replaced(exit_code: int) -> None:
    world = workers()
    world.grant_all()
    world.lose("worker:1", exit_code)
    assert len(world.outstanding) == 1
    world.run()
    assert (world.generation, world.attempt("worker:1")) == (1, 2)


def test_a_container_whose_executor_cannot_start_ends_the_job_at_once() -> None:
    world = workers()
    world.grant_all()
    world.lose("worker:1", 1)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED


def test_a_former_containers_executor_may_not_speak_or_commit() -> None:
    world = workers().run()
    former = world.executor("worker:0")
    world.disconnect("worker:0")
    world.wait(16)
    assert former.container.id in world.released
    assert not world.register("worker:0", former)
    world.restarted()
    assert world.generation == 2
    assert world.commit_of(former, 50)
    assert world.commit(50) is None


def test_an_executor_whose_node_is_out_of_the_clusters_reach_is_cut_off() -> None:
    world = workers().run()
    former = world.executor("worker:1")
    world.lose("worker:1")  # so YARN says, after some minutes
    assert world.disconnected == ["worker:1"]
    assert world.session.refusal("worker:1", former.attempt, former.container.id)


def test_a_replacement_that_does_not_register_is_replaced() -> None:
    world = World(job(WORKERS, policy=policy(), registration=50), ["worker"]).run()
    world.lose("worker:1")
    world.obey_all()
    world.grant_all()
    late = world.container("worker:1")
    world.wait(51)
    assert late in world.released
    assert world.session.verdict is None
    world.run()
    assert world.generation == 2
    assert world.attempt("worker:1") == 3


def test_the_whole_gang_is_given_back_when_a_replacement_does_not_come() -> None:
    world = World(job(WORKERS, policy=policy(), replacement=60, queue=100, grace=10, checkpoint=20), ["worker"]).run()
    world.commit(5)
    world.lose("worker:1")
    world.obey_all()
    world.wait(61)
    assert world.session.phase is JobState.WAITING
    assert sorted(world.shut_down()) == ["worker:0", "worker:2"]
    assert not world.outstanding
    world.complete_all()
    world.wait(90)
    assert len(world.outstanding) == 3
    assert world.session.verdict is None  # the queue timeout counts from there
    world.run()
    assert world.generation == 2
    assert world.rendezvous[-1].resume == point(5, "store/step-5-1")


def test_a_gang_that_was_given_back_waits_no_longer_than_the_queue_timeout() -> None:
    world = World(job(WORKERS, policy=policy(), replacement=60, queue=100), ["worker"]).run()
    world.lose("worker:1")
    world.obey_all()
    world.wait(61 + 101)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.QUEUE_TIMEOUT


# ---- scopes --------------------------------------------------------------------------------------------------------


def test_independent_tasks_start_again_alone_where_they_were() -> None:
    world = standalone().run()
    world.end("worker:1", exit_code=1)
    assert not world.stops
    sent = world.rendezvous[-1]
    assert sent.starts == {"worker:1": 2}
    assert sent.keep_checkpoints
    assert sent.cluster == world.rendezvous[0].cluster
    assert world.session.phase is JobState.RUNNING
    world.start("worker:1")
    for name in world.states:
        world.end(name)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_an_independent_task_in_a_new_container_goes_on_from_the_store() -> None:
    world = standalone().run()
    world.commit(5)
    world.lose("worker:1")
    world.run()
    sent = world.rendezvous[-1]
    assert (sent.starts, sent.keep_checkpoints) == ({"worker:1": 2}, False)
    assert sent.resume == point(5, "store/step-5-1")
    assert sent.cluster.generation == 1
    assert sent.cluster.task("worker", 1).host == "node0"
    assert world.states["worker:1"] is TaskState.RUNNING


def test_independent_tasks_that_have_succeeded_do_not_start_again() -> None:
    world = standalone().run()
    world.end("worker:0")
    world.end("worker:1", exit_code=1)
    world.start("worker:1")
    assert world.states["worker:0"] is TaskState.SUCCEEDED
    world.end("worker:1")
    world.end("worker:2")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_each_independent_task_has_its_own_budget() -> None:
    world = standalone(budget=1).run()
    for name in world.states:
        world.end(name, exit_code=1)
        world.start(name)
    assert world.session.verdict is None
    world.end("worker:1", exit_code=2)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert "given up after 1 restart without progress" in world.verdict.message


def test_the_types_own_scope_counts() -> None:
    tasks = {"worker": task_type(1), "helper": task_type(1, restart=RestartScope.TASK)}
    world = World(job(tasks, policy=policy()), ["worker"]).run()
    world.end("helper:0", exit_code=1)
    assert world.generation == 1
    assert world.rendezvous[-1].starts == {"helper:0": 2}


def test_a_task_alone_joins_the_gang_that_starts_again() -> None:
    tasks = {"worker": task_type(2), "helper": task_type(1, restart=RestartScope.TASK)}
    world = World(job(tasks, policy=policy()), ["worker"]).run()
    world.lose("helper:0")
    world.end("worker:0", exit_code=1)
    world.obey_all()
    assert world.generation == 1
    world.run()
    assert world.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2, "helper:0": 2}


def test_what_never_restarts_fails_the_job() -> None:
    tasks = {"worker": task_type(2, restart=RestartScope.NEVER)}
    world = World(job(tasks, policy=policy()), ["worker"]).run()
    world.end("worker:0", exit_code=1)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.message == "worker:0 on node1:1 ended with exit code 1"


def test_an_evaluator_starts_again_alone() -> None:
    world = all_roles().run()
    world.end("evaluator:0", exit_code=1)
    assert world.rendezvous[-1].starts == {"evaluator:0": 2}
    world.lose("evaluator:0")
    world.run()
    assert world.rendezvous[-1].starts == {"evaluator:0": 2}
    world.tick(6)
    assert world.rendezvous[-1].starts == {"evaluator:0": 3}


def test_an_evaluator_waits_while_the_gang_starts_again() -> None:
    world = all_roles().run()
    world.end("chief:0", exit_code=1)
    world.lose("evaluator:0")
    world.grant_all()
    world.register_all()
    assert len(world.rendezvous) == 1
    world.commit(9)
    world.obey_all()
    assert [sent.starts for sent in world.rendezvous[1:]] == [{"chief:0": 2, "worker:0": 2}, {"evaluator:0": 2}]
    assert world.rendezvous[-1].resume == world.rendezvous[-2].resume == point(9, "store/step-9-1")


def test_an_evaluator_may_start_again_after_the_training() -> None:
    world = all_roles().run()
    world.end("chief:0")
    world.end("worker:0")
    world.end("evaluator:0", exit_code=1)
    assert world.rendezvous[-1].starts == {"evaluator:0": 2}
    world.start("evaluator:0")
    world.end("evaluator:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_an_evaluator_that_is_not_back_in_time_does_not_hold_the_success_up() -> None:
    world = all_roles().run()
    world.end("chief:0")
    world.end("worker:0")
    world.lose("evaluator:0")
    world.wait(41)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert not world.outstanding


def test_a_side_car_starts_again_within_its_own_budget_then_is_only_a_warning() -> None:
    world = all_roles(budget=1).run()
    world.end("sidecar:0", exit_code=1)
    assert world.rendezvous[-1].starts == {"sidecar:0": 2}
    world.start("sidecar:0")
    world.end("sidecar:0", exit_code=1)
    assert len(world.session.state.warnings) == 1
    assert world.states["sidecar:0"] is TaskState.FAILED
    world.end("chief:0", exit_code=1)
    world.restarted()
    assert world.generation == 2
    for name in ("chief:0", "worker:0", "evaluator:0"):
        world.end(name)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


# ---- budget --------------------------------------------------------------------------------------------------------


def fail_again(world: World) -> None:
    """Each time in another way."""
    world.end("worker:1", exit_code=world.generation)
    world.obey_all()


def test_restarts_without_progress_wait_longer_and_longer() -> None:
    world = workers(budget=5).run()
    for wait in (0, 5, 10, 15, 15):
        before = world.generation
        fail_again(world)
        if wait:
            assert world.generation == before
            world.wait(wait - 1)
            assert world.generation == before
            world.wait(1)
        assert world.generation == before + 1
        world.start_all()


def test_the_budget_ends_the_job_with_the_last_cause() -> None:
    world = workers(budget=2).run()
    for _ in range(2):
        fail_again(world)
        world.wait(6)
        world.start_all()
    world.end("worker:2", exit_code=4, output_tail="ValueError")
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.task, failure.exit_code) == (FailureKind.USER, "worker:2", 4)
    assert failure.message.splitlines() == [
        "worker:2 on node3:1 ended with exit code 4; given up after 2 restarts without progress (restart.budget)",
        "ValueError",
    ]


def test_a_newer_checkpoint_fills_the_budget_again() -> None:
    world = workers(budget=1).run()
    for step in (10, 20, 30):
        world.commit(step)
        before = world.generation
        fail_again(world)
        assert world.generation == before + 1
        world.start_all()
    world.commit(30)  # the one that it went on from, once more
    fail_again(world)
    assert world.session.verdict


def test_a_step_of_another_count_is_not_the_one_that_the_generation_went_on_from() -> None:
    world = workers(budget=1).run()
    world.commit(30)
    fail_again(world)
    world.start_all()
    world.commit(30, reported=True)  # the program counts otherwise than its files are called: a newer save
    fail_again(world)
    assert world.session.verdict is None
    assert world.generation == 3


def test_old_restarts_do_not_count() -> None:
    world = workers(budget=1, window=Duration(100)).run()
    for _ in range(3):
        fail_again(world)
        assert world.session.verdict is None
        world.start_all()
        world.wait(101)


def test_permanent_exit_codes_end_the_job() -> None:
    world = workers(permanent_exit_codes=[3]).run()
    world.end("worker:1", exit_code=3)
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.exit_code == 3
    assert world.verdict.failure.permanent
    assert "permanent" in world.verdict.message
    assert world.generation == 1


def test_other_exit_codes_are_not_permanent_when_they_are_given_up() -> None:
    world = workers(budget=0, permanent_exit_codes=[3]).run()
    world.end("worker:1", exit_code=4)
    world.complete_all()
    assert world.verdict.failure
    assert not world.verdict.failure.permanent


@pytest.mark.parametrize(("exit_code", "permanent"), [(3, True), (127, True), (4, False)])
def test_a_task_that_never_starts_again_says_whether_another_application_might_do_better(
    exit_code: int, permanent: bool
) -> None:
    tasks = {"worker": task_type(2, restart=RestartScope.NEVER)}
    world = workers(tasks, permanent_exit_codes=[3]).run()
    for name in world.states:
        world.end(name, exit_code=exit_code)
    world.tick()
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.permanent is permanent


def test_an_executors_own_exit_code_is_none_of_the_programs() -> None:
    """One that its master refused, where the program's exit code of that number would be permanent."""
    world = workers(budget=1, permanent_exit_codes=[contract.EXIT_REFUSED]).run()
    world.lose("worker:1", contract.EXIT_REFUSED)
    world.restarted()
    assert world.generation == 2
    world.lose("worker:1", contract.EXIT_REFUSED)
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.exit_code == contract.EXIT_REFUSED
    assert not world.verdict.failure.permanent


@pytest.mark.parametrize(
    ("exit_code", "nodes", "permanent"), [(contract.EXIT_REFUSED, 1, False), (127, 1, True), (127, 3, False)]
)
def test_a_container_that_ends_before_anything_has_run(exit_code: int, nodes: int, permanent: bool) -> None:
    world = workers(permanent_exit_codes=[contract.EXIT_REFUSED])
    world.handle(NodesCounted(nodes))
    world.grant_all()
    world.lose("worker:1", exit_code)
    world.complete_all()
    assert world.verdict.failure
    assert (world.verdict.failure.kind, world.verdict.failure.permanent) == (FailureKind.LAUNCH, permanent)


def test_a_command_that_does_not_exist_is_not_tried_again() -> None:
    world = workers().run()
    for name in world.states:
        world.end(name, exit_code=127)
    world.tick()
    world.complete_all()
    assert world.verdict.failure
    assert (world.verdict.failure.kind, world.verdict.failure.permanent) == (FailureKind.LAUNCH, True)


@pytest.mark.parametrize("reason", [ExitReason.PREEMPTED, ExitReason.MADE_ROOM])
def test_preemption_is_not_counted(reason: ExitReason) -> None:
    world = workers(budget=0).run()
    for generation in range(2, 6):
        world.lose("worker:1", reason)
        world.restarted()
        assert world.generation == generation


def test_containers_that_the_cluster_said_it_would_take_are_not_counted() -> None:
    world = workers(budget=0).run()
    world.preempt("worker:1")
    assert world.asked[0].tasks == ("worker:0",)
    assert not world.stops
    world.preempt("worker:1")
    assert len(world.asked) == 1
    world.lose("worker:1", 143)
    world.restarted()
    node = world.task("worker:2").node
    assert node
    world.node_leaves(node)
    world.lose("worker:2", ExitReason.LOST)
    world.restarted()
    assert world.generation == 3


def test_a_job_without_restarts_survives_preemption_but_not_a_loss() -> None:
    world = workers(budget=0).run()
    world.lose("worker:1", ExitReason.LOST)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED


# ---- out of memory -------------------------------------------------------------------------------------------------


def test_more_memory_after_an_out_of_memory_kill_in_a_new_container() -> None:
    world = workers(memory_step=Memory(1024), memory_limit=Memory(3500)).run()
    former = world.container("worker:1")
    world.end("worker:1", signal=9, out_of_memory=True, settles=False)
    assert not world.outstanding
    world.commit(3)
    world.settle("worker:1")
    world.obey_all()
    assert world.shut_down() == ["worker:1"]
    (request,) = world.outstanding.values()
    assert request.memory == 3072
    assert request.priority == 2
    world.complete(former)
    world.run()
    assert world.generation == 2
    world.lose("worker:2", ExitReason.EXCEEDED_MEMORY)
    (request,) = world.outstanding.values()
    assert request.memory == 3500
    world.restarted()
    world.tick(5)
    assert world.generation == 3
    world.start_all()
    world.end("worker:0", signal=9, out_of_memory=True)
    assert not world.outstanding  # the same again is all that is left


def test_more_memory_though_the_executor_tells_of_the_signal_first() -> None:
    """YARN's SIGTERM gives it 250 ms to do so; only then the end of the container says what it was for."""
    world = workers(memory_step=Memory(1024)).run()
    former = world.container("worker:1")
    world.end("worker:1", signal=15)
    world.disconnect("worker:1")
    world.obey_all()
    world.tick(1)
    assert not world.outstanding
    world.complete(former, ExitReason.EXCEEDED_MEMORY)
    (request,) = world.outstanding.values()
    assert request.memory == 3072
    world.restarted()
    world.tick(5)
    assert world.generation == 2


def test_nothing_is_asked_for_once_the_job_is_ended() -> None:
    """Found by the state machine: a container that was to be replaced, whose last copies took longer than the job."""
    world = workers(memory_step=Memory(1024)).run()
    world.end("worker:0", signal=9, out_of_memory=True, settles=False)
    world.stop()
    world.settle("worker:0")
    assert not world.outstanding
    world.complete_all()
    assert world.finished


def test_without_a_step_the_same_container_is_used_again() -> None:
    world = workers().run()
    world.end("worker:1", signal=9, out_of_memory=True)
    world.obey_all()
    assert world.generation == 2
    assert world.attempt("worker:1") == 1


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_a_node_that_loses_containers_is_avoided() -> None:
    world = workers({"worker": 4}, budget=9, node_losses=2).run()
    node = world.task("worker:1").node
    assert node
    for _ in range(2):
        world.wait(15)
        world.lose("worker:1")
        world.obey_all()
        world.grant(node=node)
        world.run()
    assert world.avoided == (node,)
    assert any(node in message for message in world.noted("avoiding"))


def test_at_most_half_of_the_nodes_are_avoided() -> None:
    world = World(job({"worker": 3}, policy=policy(budget=99, node_losses=1)), ["worker"], nodes=3).run()
    for name in ("worker:0", "worker:1", "worker:2"):
        world.wait(15)
        world.lose(name)
        world.restarted()
    assert len(world.avoided) == 1


def test_avoided_nodes_are_taken_when_nothing_else_comes() -> None:
    world = World(job(WORKERS, policy=policy(node_losses=1), replacement=100), ["worker"]).run()
    world.lose("worker:1")
    assert world.avoided
    world.obey_all()
    world.wait(51)
    assert world.avoided == ()


def test_preemption_is_not_the_nodes_fault() -> None:
    world = workers(node_losses=1).run()
    world.lose("worker:1", ExitReason.PREEMPTED)
    assert world.avoided == ()


# ---- what there is to see ------------------------------------------------------------------------------------------


def test_a_kill_ends_a_restart() -> None:
    world = workers().run()
    world.lose("worker:1")
    world.stop()
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert not world.held
    assert not world.outstanding
