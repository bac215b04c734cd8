"""A new application master finds the tasks of its predecessor, and goes on with them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session.recovery import MOST_WAIT, WAIT_FOR_NEXT
from tony_provider.runtime.am.session.session_state import ProcessEnd
from tony_provider.runtime.jobspec.model import Memory, MirrorScope, RestartPolicy
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import FinalStatus, JobState, TaskState

WORKERS = {"worker": 3}
ALL_ROLES = {"chief": 1, "worker": 1, "evaluator": 1, "sidecar": 1}


def workers(tasks: dict[str, Any] | None = None, *, alone: bool = False, **how: Any) -> World:
    return World(job(tasks or WORKERS, policy=RestartPolicy(**how), grace=10), ["worker"], alone=alone)


def test_nothing_that_runs_is_touched_when_all_come_back() -> None:
    world = workers().run()
    world.commit(10)
    world.end("worker:1", exit_code=1)
    world.restarted()
    world.commit(20)
    sent, starts = len(world.rendezvous), dict(world.starts)
    world.master_dies()
    assert world.noted("recovering")
    assert not world.noted("recovered")
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    assert world.generation == 2
    assert set(world.states.values()) == {TaskState.RUNNING}
    assert (len(world.rendezvous), world.starts) == (sent, starts)
    assert len(world.stops) == 2  # of the restart before
    assert world.session.state.generation.resume == point(10, "store/step-10-1")
    assert world.session.state.checkpoint == point(20, "store/step-20-2")
    assert world.session.state.restarts == 1
    assert world.commit(30) is None
    for name in world.states:
        world.end(name)
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_the_master_may_die_again_and_again() -> None:
    world = workers().run()
    for _ in range(3):
        world.master_dies()
        world.come_back()
        assert world.session.phase is JobState.RUNNING
    world.end("worker:1", exit_code=1)
    world.restarted()
    assert world.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}


def test_what_ended_meanwhile_is_learned_from_the_executors() -> None:
    world = workers().run()
    world.end("worker:0")
    world.master_dies()
    executor = world.executors[sorted(world.held)[1]]
    assert executor.task == "worker:1"
    world.come_back()
    assert world.states["worker:0"] is TaskState.SUCCEEDED
    world.end("worker:1")
    world.end("worker:2")
    world.complete_all()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_task_that_failed_meanwhile_has_failed() -> None:
    world = workers().run()
    world.end("worker:0", exit_code=1, settles=False)
    world.master_dies()
    world.come_back()
    world.settle("worker:0")
    world.obey_all()
    assert world.generation == 2
    assert len(world.session.groups.gang.budget.times) == 1  # by the former master


def test_executors_that_do_not_come_back_are_replaced() -> None:
    world = workers().run()
    world.commit(5)
    world.master_dies()
    lost = next(executor for executor in world.executors.values() if executor.task == "worker:1")
    for executor in list(world.executors.values()):
        if executor is not lost:
            world.register(executor.task, executor)
    assert not world.noted("recovered")
    world.wait(WAIT_FOR_NEXT + 1)
    assert lost.container.id in world.released
    assert world.session.phase is JobState.RESTARTING
    world.restarted()
    assert world.generation == 2
    assert world.attempt("worker:1") == 2
    assert world.rendezvous[-1].resume == point(5, "store/step-5-1")
    assert not world.register("worker:1", lost)


def test_a_container_that_ends_meanwhile_is_not_waited_for() -> None:
    world = workers().run()
    world.master_dies()
    lost = next(executor for executor in world.executors.values() if executor.task == "worker:1")
    world.complete(lost.container.id, ExitReason.LOST)
    world.come_back()
    assert world.session.phase is JobState.RESTARTING
    world.restarted()
    assert world.generation == 2


def test_nobody_comes_back() -> None:
    world = workers().run()
    world.commit(5)
    former = set(world.held)
    world.master_dies()
    world.executors.clear()
    world.wait(MOST_WAIT + 1)
    assert former <= world.released
    assert world.session.phase is JobState.WAITING
    world.run()
    assert world.generation == 2
    assert world.rendezvous[-1].resume == point(5, "store/step-5-1")
    assert {world.attempt(name) for name in world.states} == {2}


def test_a_master_that_dies_while_it_waits_for_containers() -> None:
    world = workers()
    world.grant()
    world.master_dies()
    world.wait(MOST_WAIT + 1)
    world.run()
    assert world.generation == 1


def test_a_master_that_dies_while_a_part_of_the_gang_is_there_waits_for_the_rest() -> None:
    world = World(job(WORKERS, allocation=200, replacement=20), ["worker"])
    world.grant()
    world.register("worker:0")
    world.master_dies()
    world.come_back()
    assert world.session.phase is JobState.WAITING
    assert len(world.outstanding) == 2
    world.wait(MOST_WAIT)  # longer than for a replacement: nothing has begun
    assert not world.noted("given_back")
    world.run()
    assert world.generation == 1
    assert len(world.rendezvous) == 1
    assert world.attempt("worker:0") == 1


def test_what_a_former_master_had_of_the_gang_is_given_back_in_time() -> None:
    world = World(job(WORKERS, allocation=20, queue=100), ["worker"])
    world.grant()
    world.register("worker:0")
    world.master_dies()
    world.come_back()
    world.wait(21)
    (given_back,) = world.noted("given_back")
    assert "1 of 3 containers were granted within 20 s" in given_back
    assert world.shut_down() == ["worker:0"]
    world.wait(100)
    world.complete_all()
    assert world.verdict.failure
    assert "at most 1 of 3 containers were granted" in world.verdict.failure.message


@pytest.mark.parametrize("budget", [0, 1])
def test_a_third_master_gathers_on_after_all_containers_of_a_running_gang_were_lost(budget: int) -> None:
    world = workers(budget=budget).run()
    world.master_dies()
    for name in world.states:
        world.lose_unheard(name)
    world.tick()
    world.grant()
    world.register("worker:0")
    world.master_dies()
    world.come_back()
    assert not world.noted("failed")
    world.run()
    assert world.generation == 2
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_a_master_that_dies_before_the_first_rendezvous() -> None:
    world = workers()
    world.grant_all()
    world.register("worker:0")
    world.master_dies()
    world.come_back()
    assert world.generation == 1
    assert {world.attempt(name) for name in world.states} == {1}


def test_a_master_that_dies_between_two_generations() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.obey("worker:0")
    world.master_dies()
    world.come_back()
    world.restarted()
    assert world.generation == 2
    assert world.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}
    for name in world.states:
        world.start(name)
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_a_stop_that_is_told_late_is_no_failure() -> None:
    """The former master had told it to stop, and its end reaches only the new one."""
    world = workers(budget=0, tasks={"worker": 2}).run()
    world.preempt("worker:1")
    world.lose("worker:1", ExitReason.PREEMPTED)
    stopping = world.executor("worker:0")
    world.master_dies()
    assert stopping.told_to_stop
    world.come_back()
    world.end("worker:0", signal=15, stopped=True)
    assert world.session.verdict is None or "worker:1 was lost" in world.session.verdict.message


def test_an_executor_that_missed_the_last_rendezvous_takes_its_gang_along() -> None:
    world = workers().run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    missed = world.executor("worker:2")
    missed.generation, missed.start, missed.running, missed.settled = 1, 1, False, True
    missed.end = ProcessEnd(1, signal=15, stopped=True)
    world.master_dies()
    world.come_back()
    world.restarted()
    assert world.generation == 3
    assert world.rendezvous[-1].starts == {"worker:0": 3, "worker:1": 3, "worker:2": 3}


def test_an_event_log_that_lags_behind_is_overruled_by_the_executors() -> None:
    world = workers().run()
    written = list(world.log)
    world.end("worker:1", exit_code=1)
    world.restarted()
    world.log = written
    world.master_dies()
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    assert world.generation == 2
    world.end("worker:1", exit_code=1)
    world.restarted()
    assert world.rendezvous[-1].starts == {"worker:0": 3, "worker:1": 3, "worker:2": 3}


def test_executors_that_were_replaced_are_refused() -> None:
    world = workers().run()
    former = world.executor("worker:1")
    world.disconnect("worker:1")
    world.wait(16)
    world.restarted()
    world.master_dies()
    assert world.session.refusal("worker:1", former.attempt, former.container.id)
    world.come_back()
    assert world.session.phase is JobState.RUNNING


def test_of_two_attempts_that_are_listed_the_newer_counts() -> None:
    world = workers(memory_step=Memory(1024)).run()
    former = world.executor("worker:1")
    world.end("worker:1", signal=9, out_of_memory=True)
    world.obey_all()
    world.grant_all()  # while the former container still keeps its log
    world.run()
    world.log = world.log[:1]
    world.master_dies()
    assert world.register("worker:1", former)
    world.come_back()
    assert world.attempt("worker:1") == 2
    assert former.container.id in world.released


def test_counters_live_on() -> None:
    world = workers(budget=2, memory_step=Memory(1024), node_losses=1).run()
    world.lose("worker:1", ExitReason.EXCEEDED_MEMORY)
    world.restarted()
    world.lose("worker:2", ExitReason.LOST)
    world.restarted()
    world.wait(6)
    world.start_all()
    avoided = world.avoided
    assert avoided
    world.avoided = ()
    world.master_dies()
    world.come_back()
    assert world.avoided == avoided
    assert world.session.containers.sizes.raised == {"worker": 3072}
    world.end("worker:0", exit_code=1)
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    assert "2 restarts" in world.verdict.message


def test_progress_before_the_masters_death_counts() -> None:
    world = workers(budget=1).run()
    world.end("worker:1", exit_code=1)
    world.restarted()
    world.commit(10)
    world.master_dies()
    world.come_back()
    world.end("worker:1", exit_code=1)
    assert world.session.verdict is None


def test_evaluators_of_an_older_generation_go_on() -> None:
    world = World(job(ALL_ROLES, policy=RestartPolicy()), ["chief", "worker"]).run()
    world.end("chief:0", exit_code=1)
    world.restarted()
    sent = len(world.rendezvous)
    world.master_dies()
    world.come_back()
    assert len(world.rendezvous) == sent
    assert set(world.states.values()) == {TaskState.RUNNING}


def test_a_missing_evaluator_starts_again_alone() -> None:
    world = World(job(ALL_ROLES, policy=RestartPolicy()), ["chief", "worker"]).run()
    world.master_dies()
    lost = next(executor for executor in world.executors.values() if executor.task == "evaluator:0")
    world.complete(lost.container.id, ExitReason.LOST)
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    world.run()
    assert world.rendezvous[-1].starts == {"evaluator:0": 2}
    assert not world.stops


def test_independent_tasks_keep_their_ranks_when_several_are_missing() -> None:
    world = workers(alone=True).run()
    world.master_dies()
    for executor in list(world.executors.values()):
        if executor.task != "worker:2":
            world.complete(executor.container.id, ExitReason.LOST)
    world.come_back()
    world.grant(max(world.outstanding))
    world.register_all()
    assert len(world.rendezvous) == 1  # who has which rank is known once all are there
    world.run()
    clusters = [[task.index for task in sent.cluster.tasks] for sent in world.rendezvous]
    assert clusters == [[0, 1, 2]] * 3


def test_the_gang_stays_smaller() -> None:
    spec = job({"worker": task_type(3, min_instances=2)}, policy=RestartPolicy(), replacement=30)
    world = World(spec, ["worker"]).run()
    world.lose("worker:1")
    world.obey_all()
    world.wait(31)
    world.start_all()
    sent = len(world.rendezvous)
    world.master_dies()
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    assert len(world.rendezvous) == sent
    assert len(world.outstanding) == 1
    world.grant()
    world.register("worker:1")
    world.commit(9)
    world.obey_all()
    assert set(world.rendezvous[-1].starts) == {"worker:0", "worker:1", "worker:2"}


def test_a_kill_while_it_recovers() -> None:
    world = workers().run()
    former = set(world.held)
    world.master_dies()
    world.register("worker:0", world.executors[sorted(former)[0]])
    world.stop()
    assert world.shut_down() == ["worker:0"]
    assert len(world.released) == 2
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED


def test_the_lifetime_is_the_applications() -> None:
    world = World(job(WORKERS, policy=RestartPolicy(), lifetime=100), ["worker"]).run()
    world.wait(60)
    world.master_dies()
    world.come_back()
    world.wait(30)
    assert world.session.verdict is None
    world.wait(10)
    assert world.session.verdict
    assert world.session.verdict.status is FinalStatus.KILLED


@pytest.mark.parametrize("name", ["worker:1", "worker:9"])
def test_containers_that_are_not_listed_are_refused(name: str) -> None:
    world = workers().run()
    world.master_dies()
    assert world.session.refusal(name, 1, "container_1_0001_01_000099")


def test_a_start_of_all_ends_what_was_decided_for_single_tasks() -> None:
    world = workers(alone=True).run()
    for name in list(world.states):
        world.lose(name)
    world.master_dies()  # it finds nobody
    world.run()
    sent = len(world.rendezvous)
    world.master_dies()
    world.come_back()
    assert len(world.rendezvous) == sent
    assert world.session.phase is JobState.RUNNING


def test_former_attempts_that_still_keep_their_logs_are_not_waited_for() -> None:
    world = workers(memory_step=Memory(1024)).run()
    former = world.container("worker:1")
    world.end("worker:1", signal=9, out_of_memory=True)
    world.restarted()
    assert former in world.held
    world.master_dies()
    world.come_back()
    assert world.session.phase is JobState.RUNNING
    assert former in world.held
    world.wait(limits.KEEP_LOGS + 1)
    assert former in world.released


# ---- commits -------------------------------------------------------------------------------------------------------


def test_ranks_are_those_of_the_generation_though_one_has_not_come_back() -> None:
    """Else the shards of the others would make a checkpoint that lacks one."""
    spec = job(WORKERS, policy=RestartPolicy(), mirror=MirrorScope.ALL)
    world = World(spec, ["worker"]).run()
    ranks = list(world.session.mirror_ranks())
    assert len(ranks) == 3
    world.master_dies()
    assert list(world.session.mirror_ranks()) == ranks
    world.lose_unheard("worker:2")
    world.come_back()
    assert world.session.phase is JobState.RESTARTING
    assert list(world.session.mirror_ranks()) == ranks


def test_a_commit_that_waited_for_the_next_master_is_granted_by_it() -> None:
    world = workers().run()
    world.master_dies()
    world.register("worker:0", world.executor_of("worker:0"))
    assert not world.noted("recovered")
    assert world.commit(10, "worker:0") is None
    assert ("worker:0", 0) in world.session.mirror_ranks()


# ---- a job that was ending -----------------------------------------------------------------------------------------


def test_a_job_that_was_told_to_stop_does_not_train_on() -> None:
    world = workers().run()
    world.stop("killed by ann")
    told = world.shut_down()
    world.master_dies()
    assert world.session.phase is JobState.FINISHING
    assert not world.register("worker:0", world.executor_of("worker:0"))
    world.wait(5)
    assert not world.released, "they have their grace"
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert world.verdict.message == "killed by ann"
    assert (world.outstanding, world.shut_down(), world.generation) == ({}, told, 1)


def test_a_job_that_had_failed_keeps_its_failure() -> None:
    world = workers(budget=0).run()
    world.end("worker:1", exit_code=3)
    world.obey_all()
    world.master_dies()
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.task, failure.exit_code) == ("worker:1", 3)


def test_a_job_that_had_succeeded_stays_so() -> None:
    world = workers({"worker": 2, "evaluator": 1}).run()
    world.end("worker:0")
    world.end("worker:1")
    assert world.session.verdict is None, "the evaluator has time"
    world.master_dies()
    world.wait(limits.KEEP_LOGS + limits.RELEASE_WAIT + 120)
    assert world.verdict.status is FinalStatus.SUCCEEDED
    states = [world.task(name).state for name in ("worker:0", "worker:1", "evaluator:0")]
    assert states == [TaskState.SUCCEEDED, TaskState.SUCCEEDED, TaskState.STOPPED]
