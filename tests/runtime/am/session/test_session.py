"""How a job ends, rule by rule, and what is said about it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.world import World, job
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session.actions import ShutdownTask
from tony_provider.runtime.am.session.reports import MOST_REPLACEMENTS
from tony_provider.runtime.am.session.session_events import StopOrder
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import Role, SuccessRule, TaskSpec
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

WORKERS = {"worker": 2}
PS_JOB = {"chief": 1, "ps": 1, "worker": 2}
LOST_AFTER = limits.lost_after(limits.HEARTBEAT_INTERVAL)
ALL_ROLES = {"chief": 1, "worker": 1, "evaluator": 1, "sidecar": 1}


def workers(**timeouts: Any) -> World:
    return World(job(WORKERS, **timeouts), ["worker"])


def ps_job() -> World:
    return World(job(PS_JOB), ["chief"])


def all_roles(**timeouts: Any) -> World:
    return World(job(ALL_ROLES, **timeouts), ["chief", "worker"])


# ---- the gang ------------------------------------------------------------------------------------------------------


def test_executors_start_at_once_and_no_user_process_before_the_whole_gang_is_there() -> None:
    world = workers()
    world.grant()
    assert len(world.launched) == 1
    world.register("worker:0")
    assert not world.noted("gang_complete")
    assert not world.rendezvous
    world.grant()
    assert len(world.launched) == 2
    assert world.session.phase is JobState.STARTING
    assert not world.rendezvous
    world.register("worker:1")
    assert len(world.rendezvous) == 1


def test_rendezvous_goes_to_all_once_all_have_registered() -> None:
    world = workers()
    world.grant_all()
    world.register("worker:1")
    assert not world.rendezvous
    world.register("worker:0")
    (sent,) = world.rendezvous
    assert tuple(sent.starts) == ("worker:0", "worker:1")
    assert [(task.type, task.index, task.host) for task in sent.cluster.tasks] == [
        ("worker", 0, "node1"),
        ("worker", 1, "node2"),
    ]
    assert sent.cluster.generation == 1


def test_partly_allocated_gang_gives_back_and_asks_again() -> None:
    world = workers(allocation=20)
    first = world.grant()
    world.wait(19)
    assert not world.released
    world.wait(2)
    assert world.released == {first}
    assert not world.outstanding
    world.wait(20)
    assert len(world.outstanding) == 2
    world.run()
    assert world.session.phase is JobState.RUNNING


def test_gang_that_holds_nothing_keeps_its_place_in_the_queue() -> None:
    world = workers(allocation=20)
    before = dict(world.outstanding)
    world.wait(100)
    assert world.outstanding == before


def test_queue_timeout_says_what_was_missing() -> None:
    world = workers(queue=60, allocation=500)
    world.grant()
    world.wait(61)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.QUEUE_TIMEOUT
    assert "at most 1 of 2 containers were granted" in failure.message
    assert "1 x worker (2048 MiB, 1 vcore)" in failure.message
    assert not world.held


def test_two_gangs_that_each_need_more_than_half_both_finish() -> None:
    """Four places, two gangs of three: they deadlock unless one gives back."""
    places = 4
    gangs = [
        World(job({"worker": 3}, allocation=20), ["worker"], jitter=0.1),
        World(job({"worker": 3}, allocation=20), ["worker"], jitter=0.9),
    ]
    for _ in range(1000):
        for gang in gangs:
            if gang.outstanding and sum(len(each.held) for each in gangs) < places:
                gang.grant()
            gang.register_all()
            if gang.session.phase is JobState.RUNNING:
                for task in gang.session.tasks:
                    gang.end(task.name)
                gang.complete_all()
            gang.tick()
        if all(gang.finished for gang in gangs):
            break
    assert [gang.verdict.status for gang in gangs] == [FinalStatus.SUCCEEDED] * 2


def test_container_lost_while_the_rest_is_waited_for_is_asked_for_again() -> None:
    world = workers(allocation=500, replacement=20)
    world.complete(world.grant(), ExitReason.LOST)
    assert len(world.outstanding) == 2
    world.wait(30)  # no longer than the others: these may take longer than a replacement
    assert not world.noted("given_back")
    world.run()
    assert world.session.phase is JobState.RUNNING


def test_a_node_that_has_nothing_to_start_an_executor_with_ends_the_job_though_others_are_waited_for() -> None:
    world = workers()
    world.complete(world.grant(), contract.EXIT_NO_PYTHON)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.task == "worker:0"
    assert failure.kind is FailureKind.LAUNCH


def test_containers_that_are_lost_while_others_are_waited_for_are_asked_for_as_often_as_that_happens() -> None:
    world = workers(allocation=5000)
    for _ in range(MOST_REPLACEMENTS + 2):
        world.complete(world.grant(world.task("worker:0").key), ExitReason.LOST)
        lost = world.grant(world.task("worker:0").key)
        world.register("worker:0")
        world.complete(lost, 137)  # by its node
    world.run()
    assert world.session.phase is JobState.RUNNING


def test_launches_that_nodes_refuse_while_others_are_waited_for_end_the_job() -> None:
    world = workers(allocation=5000)
    for _ in range(MOST_REPLACEMENTS + 1):
        world.launch_fails(world.grant(world.task("worker:0").key))
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.kind is FailureKind.LAUNCH


def test_nodes_that_were_avoided_are_taken_again_when_no_other_gives_anything() -> None:
    world = World(job({"worker": 4}, allocation=60), ["worker"])
    world.complete(world.grant(node="b:1"), ExitReason.LOST)
    for lost in [world.grant(node="a:1"), world.grant(node="a:1")]:
        world.complete(lost, ExitReason.LOST)
    before = world.avoided
    world.wait(61)
    assert (before, world.avoided) == (("a:1",), ())


def test_executors_that_wait_for_the_others_end_when_everything_is_given_back() -> None:
    world = workers(allocation=20)
    first = world.grant()
    world.register("worker:0")
    world.wait(21)
    assert world.shut_down() == ["worker:0"]
    world.complete(first)
    assert not world.held
    world.wait(20)
    world.run()
    assert world.attempt("worker:0") == 2
    assert world.session.phase is JobState.RUNNING


def test_container_lost_before_the_start_is_replaced() -> None:
    world = workers()
    world.grant_all()
    world.register("worker:1")
    world.complete(world.container("worker:0"), ExitReason.LOST)
    assert world.attempt("worker:0") == 2
    world.run()
    assert world.rendezvous
    world.end("worker:0")
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_refused_launches_are_replaced_a_bounded_number_of_times() -> None:
    world = workers()
    world.grant_all()
    for _ in range(MOST_REPLACEMENTS + 1):
        world.launch_fails(world.container("worker:0"))
        world.grant_all()
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.LAUNCH
    assert "worker:0 on node" in failure.message
    assert "no disk left" in failure.message
    assert f"the {MOST_REPLACEMENTS} previous containers were also lost" in failure.message


def test_containers_that_the_launcher_refuses_are_replaced_a_bounded_number_of_times() -> None:
    world = workers()
    world.grant_all()
    for _ in range(MOST_REPLACEMENTS + 1):
        assert not world.finished
        world.lose("worker:1", contract.EXIT_BAD_CONTAINER)
        world.grant_all()
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.exit_code) == (FailureKind.LAUNCH, contract.EXIT_BAD_CONTAINER)
    assert f"the {MOST_REPLACEMENTS} previous containers were also lost" in failure.message


def test_containers_that_are_taken_back_before_a_process_runs_are_replaced_for_ever() -> None:
    world = workers()
    world.grant_all()
    for _ in range(3 * MOST_REPLACEMENTS):
        world.lose("worker:0", ExitReason.PREEMPTED)
        world.grant_all()
    assert world.run().generation == 1


def test_gang_whose_replacement_never_comes_gives_everything_back_and_asks_again() -> None:
    world = workers(replacement=30)
    world.grant_all()
    world.register("worker:1")
    world.complete(world.container("worker:0"), ExitReason.DISKS_FAILED)
    second = world.container("worker:1")
    world.wait(31)
    assert world.shut_down() == ["worker:1"]
    assert world.session.refusal("worker:1", 1, second)
    world.complete(second)
    assert world.noted("given_back")
    world.wait(120)
    world.run()
    assert world.session.phase is JobState.RUNNING
    assert world.attempt("worker:1") == 2


def test_former_attempt_may_not_speak() -> None:
    world = workers()
    world.grant_all()
    first = world.container("worker:0")
    world.complete(first, ExitReason.LOST)
    assert world.session.refusal("worker:0", 1, first)
    world.grant_all()
    second = world.container("worker:0")
    assert world.session.refusal("worker:0", 2, second) is None
    assert world.session.refusal("worker:0", 2, first)
    assert world.session.refusal("worker:0", 1, first)
    assert world.session.refusal("worker:7", 1, first)


def test_registration_timeout_names_tasks_and_nodes() -> None:
    world = workers(registration=50)
    world.grant_all()
    world.register("worker:0")
    world.wait(51)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.REGISTRATION_TIMEOUT
    assert "worker:1 on node" in failure.message
    assert "worker:0" not in failure.message


def test_launcher_that_ends_before_it_registers_fails_the_job_with_its_words() -> None:
    world = workers()
    world.grant_all()
    world.complete(world.container("worker:0"), 65, "no Python found\n")
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.LAUNCH
    assert "exit code 65" in failure.message
    assert failure.message.endswith("no Python found")


def test_a_container_is_not_waited_for_once_its_executor_has_taken_leave() -> None:
    world = World(job({"worker": 2}), ["worker"]).run()
    world.end("worker:0")
    world.end("worker:1")
    world.leave("worker:0")
    world.disconnect("worker:1")  # it may come back, and be keeping its log
    assert world.session.verdict
    assert not world.session.finished
    world.complete(world.container("worker:1"))
    assert world.session.finished
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_leave_before_the_job_ends_is_no_end() -> None:
    world = World(job({"worker": 2}), ["worker"]).run()
    world.leave("worker:0")
    assert world.session.verdict is None
    assert world.task("worker:0").first_symptom_at is not None


# ---- the verdict ---------------------------------------------------------------------------------------------------


def test_all_workers_succeed() -> None:
    world = workers().run()
    world.end("worker:0")
    assert not world.shut_down()
    world.end("worker:1")
    assert sorted(world.shut_down()) == ["worker:0", "worker:1"]
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert world.states == {"worker:0": TaskState.SUCCEEDED, "worker:1": TaskState.SUCCEEDED}


def test_chief_ends_a_parameter_server_job() -> None:
    world = ps_job().run()
    world.end("chief:0")
    assert sorted(world.shut_down()) == ["chief:0", "ps:0", "worker:0", "worker:1"]
    world.end("ps:0", signal=15, stopped=True)
    world.end("worker:0", exit_code=143, stopped=True)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert world.states["ps:0"] is TaskState.STOPPED


@pytest.mark.parametrize("name", ["chief:0", "ps:0", "worker:1"])
def test_failure_of_a_needed_task_fails_the_job(name: str) -> None:
    world = ps_job().run()
    world.end(name, exit_code=3, output_tail="Traceback\nValueError: bad shape")
    assert sorted(world.shut_down()) == ["chief:0", "ps:0", "worker:0", "worker:1"]
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.task, failure.exit_code) == (FailureKind.USER, name, 3)
    assert world.verdict.message.startswith(f"{name} on node")
    assert "exit code 3" in world.verdict.message
    assert world.verdict.message.endswith("ValueError: bad shape")


def test_worker_of_a_parameter_server_job_may_end_early() -> None:
    world = ps_job().run()
    world.end("worker:0")
    assert world.session.verdict is None
    world.end("chief:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_evaluator_may_go_on_and_side_car_is_stopped() -> None:
    world = all_roles(evaluator=40).run()
    world.end("chief:0")
    world.end("worker:0")
    assert sorted(world.shut_down()) == ["chief:0", "sidecar:0", "worker:0"]
    world.wait(10)
    assert world.session.verdict is None
    world.end("evaluator:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert world.states["evaluator:0"] is TaskState.SUCCEEDED


def test_evaluator_is_stopped_after_its_time() -> None:
    world = all_roles(evaluator=10).run()
    world.end("chief:0")
    world.end("worker:0")
    world.wait(11)
    assert "evaluator:0" in world.shut_down()
    world.end("evaluator:0", signal=15, stopped=True)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert world.states["evaluator:0"] is TaskState.STOPPED


def test_failing_evaluator_fails_the_job_even_after_the_training() -> None:
    world = all_roles(evaluator=40).run()
    world.end("chief:0")
    world.end("worker:0")
    world.end("evaluator:0", exit_code=1)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.failure
    assert world.verdict.failure.task == "evaluator:0"


def test_failing_side_car_is_only_a_warning() -> None:
    world = all_roles().run()
    world.end("sidecar:0", exit_code=7)
    for name in ("evaluator:0", "chief:0", "worker:0"):
        world.end(name)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert "sidecar:0" in world.session.state.warnings[0]
    assert world.states["sidecar:0"] is TaskState.FAILED


def serving() -> World:
    """A worker and another that only serves it."""
    tasks: dict[str, int | TaskSpec] = {"worker": 1, "server": TaskSpec("true", role=Role.WORKER, decides=False)}
    return World(job(tasks), ["worker", "server"]).run()


def test_a_worker_that_does_not_decide_may_end_and_is_not_waited_for() -> None:
    world = serving()
    world.end("server:0")
    assert world.session.phase is JobState.RUNNING
    world.end("worker:0")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    world = serving()
    world.end("worker:0")
    assert "server:0" in world.shut_down()


def test_a_worker_that_does_not_decide_fails_the_job_all_the_same() -> None:
    world = serving()
    world.end("server:0", exit_code=3)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.failure
    assert world.verdict.failure.task == "server:0"


def test_the_chief_s_success_is_the_job_s_where_the_job_says_so() -> None:
    wanted = attrs.evolve(job({"chief": 1, "worker": 2}), success=SuccessRule.CHIEF)
    world = World(wanted, ["chief", "worker"]).run()
    world.end("worker:0")
    assert world.session.phase is JobState.RUNNING
    world.end("chief:0")
    assert "worker:1" in world.shut_down()
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_all_must_succeed_where_the_job_says_so() -> None:
    world = World(attrs.evolve(job(PS_JOB), success=SuccessRule.ALL), ["chief"]).run()
    world.end("chief:0")
    world.end("worker:0")
    assert world.session.phase is JobState.RUNNING
    world.end("worker:1")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_one_success_is_enough_where_the_job_says_so() -> None:
    world = World(attrs.evolve(job({"worker": 3}), success=SuccessRule.ANY), ["worker"]).run()
    world.end("worker:1")
    assert {"worker:0", "worker:2"} <= set(world.shut_down())
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    states = {task.name: task.state for task in world.session.tasks}
    assert states == {
        "worker:0": TaskState.STOPPED,
        "worker:1": TaskState.SUCCEEDED,
        "worker:2": TaskState.STOPPED,
    }


def test_where_one_success_is_enough_a_failure_still_counts() -> None:
    world = World(attrs.evolve(job({"worker": 2}), success=SuccessRule.ANY), ["worker"]).run()
    world.end("worker:1", exit_code=3)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED


def test_lost_output_is_a_warning_once_for_a_node() -> None:
    world = workers().run()
    for _ in range(2):
        world.beat("worker:0", output_problem="the disk is full")
        world.beat("worker:1", output_problem="the disk is nearly full")
    assert world.session.state.warnings == [
        "output of worker:0 on node1:1 is not complete: the disk is full",
        "output of worker:1 on node2:1 is not complete: the disk is nearly full",
    ]
    world.end("worker:0")
    world.end("worker:1", output_problem="the disk is nearly full")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED
    assert len(world.session.state.warnings) == 2


def test_side_car_that_cannot_start_does_not_hold_the_gang_up() -> None:
    world = all_roles(registration=50)
    world.grant_all()
    for name in ("chief:0", "worker:0", "evaluator:0"):
        world.register(name)
    assert not world.rendezvous
    world.wait(51)
    assert tuple(world.rendezvous[0].starts) == ("chief:0", "worker:0", "evaluator:0")


def test_first_failure_is_the_cause() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=2)
    world.end("worker:0", exit_code=1)
    world.complete_all()
    assert world.verdict.failure
    assert world.verdict.failure.task == "worker:1"


def test_lost_container_is_the_cause_though_its_peer_failed_before_the_cluster_told() -> None:
    world = workers().run()
    world.disconnect("worker:1")
    world.tick()
    world.end("worker:0", exit_code=1, output_tail="connection reset by peer")
    assert world.session.verdict is None
    world.complete(
        world.container("worker:1"), ExitReason.EXCEEDED_MEMORY, "Container is running beyond physical memory limits"
    )
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.OUT_OF_MEMORY, "worker:1")
    assert "more memory than it was given" in failure.message


def test_killed_process_takes_its_reason_from_the_container() -> None:
    world = workers().run()
    world.end("worker:0", signal=15, stopped=True)
    assert world.session.verdict is None
    world.complete(world.container("worker:0"), ExitReason.KILLED_BY_CLUSTER)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.CONTAINER_LOST
    assert "killed by the ResourceManager" in failure.message


def test_killed_process_in_a_living_container_is_the_users_failure() -> None:
    world = workers().run()
    world.end("worker:0", signal=9)
    world.wait(6)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.signal) == (FailureKind.USER, 9)
    assert "SIGKILL" in failure.message


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ({"exit_code": 127}, FailureKind.LAUNCH, "command not found"),
        ({"exit_code": 137}, FailureKind.USER, "SIGKILL"),
        ({"signal": 9, "out_of_memory": True}, FailureKind.OUT_OF_MEMORY, "ran out of memory"),
        ({"signal": 11}, FailureKind.USER, "SIGSEGV"),
        ({"error": "could not upload the model: disk full"}, FailureKind.INTERNAL, "could not upload the model"),
    ],
)
def test_kinds_of_failure(how: dict[str, Any], kind: FailureKind, words: str) -> None:
    world = workers().run()
    for name in world.states:
        world.end(name, **how)
    world.tick()
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is kind
    assert words in failure.message


def test_silent_executor_is_lost_and_its_container_taken_away() -> None:
    world = workers().run()
    container = world.container("worker:1")
    world.disconnect("worker:1")
    world.wait(LOST_AFTER + 8)
    failure = world.verdict.failure if world.finished else world.session.verdict and world.session.verdict.failure
    assert failure
    assert failure.kind is FailureKind.CONTAINER_LOST
    assert "worker:1 on node" in failure.message
    assert container in world.released
    assert world.disconnected == ["worker:1"]


def test_own_sleep_is_not_the_executors_silence() -> None:
    world = workers().run()
    world.wait(5)
    world.tick(600)
    world.tick()
    assert world.session.verdict is None


def test_reconnected_executor_goes_on() -> None:
    world = workers().run()
    world.disconnect("worker:1")
    world.tick(5)
    world.register("worker:1")
    world.wait(60)
    assert world.session.verdict is None
    assert len(world.rendezvous) == 1


def test_rendezvous_is_sent_again_to_an_executor_that_missed_it() -> None:
    world = workers()
    world.grant_all()
    world.register("worker:0")
    world.register("worker:1")
    world.disconnect("worker:1")
    missed = world.executor("worker:1")
    missed.start, missed.running = 0, False
    world.register("worker:1")
    assert dict(world.rendezvous[1].starts) == {"worker:1": 1}
    assert world.rendezvous[1].cluster == world.rendezvous[0].cluster


def test_nobody_starts_while_an_executor_is_cut_off() -> None:
    world = workers()
    world.grant_all()
    world.register("worker:0")
    world.disconnect("worker:0")
    world.register("worker:1")
    assert not world.rendezvous
    world.register("worker:0")
    assert len(world.rendezvous) == 1


# ---- stopping ------------------------------------------------------------------------------------------------------


def test_kill_stops_every_task_with_grace() -> None:
    world = workers(grace=7).run()
    world.stop("killed by ann")
    assert world.shutdowns == [
        ShutdownTask("worker:0", 7, "killed by ann"),
        ShutdownTask("worker:1", 7, "killed by ann"),
    ]
    assert not world.finished
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert set(world.states.values()) == {TaskState.STOPPED}


def test_a_kill_may_say_how_much_grace_there_is() -> None:
    world = workers(grace=7).run()
    world.handle(StopOrder("killed by ann", 90))
    assert [shutdown.grace for shutdown in world.shutdowns] == [90, 90]


def test_second_kill_takes_the_containers_away() -> None:
    world = workers().run()
    world.stop()
    world.stop()
    assert world.released == set(world.launched)


def test_second_kill_with_a_shorter_grace_leaves_that() -> None:
    world = workers(grace=300, checkpoint=20).run()
    world.stop()
    world.handle(StopOrder("now", 5))
    assert [shutdown.grace for shutdown in world.shutdowns] == [300, 300, 5, 5]
    world.wait(5 + 20 + limits.KEEP_LOGS - 2)
    assert not world.released
    world.wait(4)
    assert world.released == set(world.launched)


def test_kill_while_waiting_ends_as_soon_as_executors_have_ended() -> None:
    world = workers()
    first = world.grant()
    world.stop()
    assert world.released == {first}
    assert not world.outstanding
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert not world.held


def test_lifetime_ends_the_job() -> None:
    world = workers(lifetime=100).run()
    world.wait(101)
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert "lifetime" in world.verdict.message


def test_tasks_that_do_not_end_are_given_up_in_bounded_time() -> None:
    world = workers(grace=5).run()
    world.stop()
    world.wait(5 + 60 + limits.KEEP_LOGS + 1)
    assert world.released == set(world.launched)
    assert not world.finished
    world.wait(11)
    assert world.finished


def test_late_allocation_is_given_back() -> None:
    world = workers()
    on_its_way = dict(world.outstanding)
    world.stop()
    world.outstanding = on_its_way
    assert world.grant() in world.released
