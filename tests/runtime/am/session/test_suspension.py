"""Suspended jobs: everything is given back after a checkpoint, and comes again when somebody says so."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.jobspec.model import (
    Milestone,
    MirrorScope,
    ReadinessProbe,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
)
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState

REASON = "the day belongs to others"


def world(tasks: dict[str, Any] | None = None, decisive: str = "worker", *, alone: bool = False, **how: Any) -> World:
    spec = job(tasks or {"worker": 2}, policy=RestartPolicy(budget=3), grace=10, checkpoint=20, **how)
    return World(spec, [decisive], alone=alone)


def gone(jobs: World) -> None:
    """Nothing is held or asked for."""
    assert jobs.session.phase is JobState.SUSPENDED
    assert not jobs.outstanding
    jobs.complete_all()
    assert not jobs.held


def suspended(tasks: dict[str, Any] | None = None, decisive: str = "worker", **how: Any) -> World:
    """One that ran until then, and has committed step 5 for it."""
    jobs = world(tasks, decisive, **how).run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    return jobs


def test_a_checkpoint_is_asked_for_first() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    assert jobs.asked[-1].tasks == ("worker:0",)
    assert not jobs.stops
    assert jobs.session.phase is JobState.RUNNING
    jobs.tick()
    assert len(jobs.asked) == 1
    jobs.commit(5)
    assert jobs.stopped() == ["worker:0", "worker:1"]
    assert jobs.held


def test_once_nobody_runs_everything_is_given_back() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey("worker:0")
    assert jobs.session.phase is JobState.RESTARTING
    assert jobs.shut_down() == []
    jobs.obey("worker:1")
    assert jobs.shut_down() == ["worker:0", "worker:1"]
    assert set(jobs.states.values()) == {TaskState.REQUESTED}
    gone(jobs)
    jobs.wait(10_000)
    assert jobs.session.verdict is None
    assert not jobs.outstanding


def test_where_no_checkpoint_comes_it_stops_after_a_time() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.wait(CHECKPOINT_WAIT - 1)
    assert not jobs.stops
    jobs.wait(3)
    jobs.obey_all()
    gone(jobs)


def test_the_last_copies_count() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey("worker:1")
    jobs.obey("worker:0", settles=False)
    assert jobs.session.phase is JobState.RESTARTING
    assert jobs.commit(6) is None
    jobs.settle("worker:0")
    gone(jobs)
    jobs.resume()
    jobs.run()
    assert jobs.rendezvous[-1].resume == point(6, "store/step-6-1")


def test_it_comes_again_from_the_newest_checkpoint() -> None:
    jobs = suspended()
    jobs.resume()
    assert (jobs.session.phase, len(jobs.outstanding)) == (JobState.WAITING, 2)
    jobs.run()
    sent = jobs.rendezvous[-1]
    assert (sent.cluster.generation, sent.starts) == (2, {"worker:0": 2, "worker:1": 2})
    assert sent.resume == point(5, "store/step-5-1")
    assert jobs.session.phase is JobState.RUNNING
    assert jobs.session.state.restarts == 0
    jobs.end("worker:0")
    jobs.end("worker:1")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def test_again_and_again() -> None:
    jobs = suspended()
    for step in (7, 9):
        jobs.resume()
        jobs.run()
        jobs.suspend(REASON)
        jobs.commit(step)
        jobs.obey_all()
        gone(jobs)
    assert jobs.session.state.restarts == 0


def test_asked_twice_nothing_changes() -> None:
    jobs = suspended()
    before = len(jobs.notes)
    jobs.suspend("somebody else")
    assert len(jobs.notes) == before
    assert jobs.session.suspension.reason == REASON
    jobs.resume()
    before = len(jobs.notes)
    jobs.resume()
    assert len(jobs.notes) == before


def test_a_job_that_is_not_suspended_does_not_mind_to_be_resumed() -> None:
    jobs = world().run()
    before = len(jobs.notes)
    jobs.resume()
    assert (len(jobs.notes), jobs.session.phase) == (before, JobState.RUNNING)


def test_while_it_waits_for_containers_it_is_suspended_at_once() -> None:
    jobs = world()
    jobs.grant()
    jobs.suspend(REASON)
    gone(jobs)
    jobs.resume()
    jobs.run()
    assert jobs.rendezvous[-1].starts == {"worker:0": 1, "worker:1": 1}


def test_so_it_is_while_executors_start() -> None:
    jobs = world()
    jobs.grant_all()
    jobs.register("worker:0")
    assert jobs.session.phase is JobState.STARTING
    jobs.suspend(REASON)
    gone(jobs)
    jobs.resume()
    assert jobs.run().session.phase is JobState.RUNNING


def test_while_it_starts_again() -> None:
    jobs = world().run()
    jobs.commit(3)
    jobs.end("worker:1", exit_code=1)
    assert jobs.session.phase is JobState.RESTARTING
    jobs.suspend(REASON)
    assert not jobs.asked  # it has failed: nobody could make one
    jobs.obey_all()
    jobs.wait(20)
    gone(jobs)
    assert jobs.session.generation == 1
    jobs.resume()
    jobs.run()
    assert jobs.rendezvous[-1].resume == point(3, "store/step-3-1")
    assert jobs.session.state.restarts == 1


def test_a_lost_container_does_not_keep_it_from_being_suspended() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.lose("worker:1")
    jobs.obey_all()
    jobs.wait(30)
    gone(jobs)


def test_a_failure_meanwhile_is_decided_as_ever() -> None:
    jobs = World(job({"worker": 2}, policy=RestartPolicy(budget=0), grace=10, checkpoint=20), ["worker"]).run()
    jobs.suspend(REASON)
    jobs.end("worker:1", exit_code=1)
    jobs.complete_all()
    assert jobs.session.phase is JobState.FAILED
    assert jobs.verdict.failure
    assert jobs.verdict.failure.kind is FailureKind.USER


def test_success_meanwhile_is_one() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.end("worker:0")
    jobs.end("worker:1")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


# ---- resumed before it was suspended ---------------------------------------------------------------------------------


def test_resumed_before_anything_was_stopped_it_runs_on() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.resume()
    jobs.commit(5)
    jobs.wait(CHECKPOINT_WAIT * 2)
    assert not jobs.stops
    assert jobs.session.phase is JobState.RUNNING


def test_resumed_while_processes_stop_they_start_again_in_their_containers() -> None:
    jobs = world().run()
    held = jobs.held
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey("worker:0")
    jobs.resume()
    jobs.obey("worker:1")
    assert jobs.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2}
    assert jobs.held == held
    assert jobs.session.phase is JobState.RUNNING


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_it_can_be_stopped() -> None:
    jobs = suspended()
    jobs.stop()
    assert jobs.verdict.status is FinalStatus.KILLED
    assert set(jobs.states.values()) == {TaskState.STOPPED}


@pytest.mark.parametrize("limit", [{"lifetime": 500.0}, {"deadline": 1_000_600.0}])
def test_its_lifetime_and_its_deadline_count_on(limit: dict[str, Any]) -> None:
    jobs = suspended(**limit)
    jobs.wait(1000)
    assert jobs.verdict.status is FinalStatus.KILLED


def test_the_queues_timeout_counts_anew() -> None:
    jobs = world(queue=300.0)
    jobs.wait(200)
    jobs.suspend(REASON)
    jobs.wait(1000)
    jobs.resume()
    jobs.wait(200)
    assert jobs.session.verdict is None
    jobs.wait(200)
    jobs.complete_all()
    assert jobs.verdict.failure
    assert jobs.verdict.failure.kind is FailureKind.QUEUE_TIMEOUT


def test_neither_stalls_nor_silence_are_looked_for() -> None:
    jobs = suspended(stall=30.0)
    jobs.wait(1000)
    jobs.resume()
    jobs.run()
    jobs.tick()
    assert (jobs.session.phase, jobs.session.verdict) == (JobState.RUNNING, None)
    assert not jobs.noted("failed")


def test_a_job_that_ends_is_not_suspended() -> None:
    jobs = world().run()
    jobs.stop()
    jobs.suspend(REASON)
    assert jobs.session.suspension.reason is None
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.KILLED


# ---- another application master --------------------------------------------------------------------------------------


def test_the_next_master_of_a_suspended_job_asks_for_nothing() -> None:
    jobs = suspended()
    jobs.master_dies()
    gone(jobs)
    jobs.resume()
    jobs.run()
    assert jobs.rendezvous[-1].starts == {"worker:0": 2, "worker:1": 2}
    assert jobs.rendezvous[-1].resume == point(5, "store/step-5-1")


def test_the_next_master_of_one_that_waits_for_its_checkpoint_asks_again() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.master_dies()
    jobs.come_back()
    assert len(jobs.asked) == 2
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)


def test_the_next_master_of_one_that_stops_stops_the_rest() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey("worker:0")
    jobs.master_dies()
    jobs.come_back()
    jobs.wait(CHECKPOINT_WAIT + 5)
    jobs.obey_all()
    gone(jobs)
    assert len(jobs.rendezvous) == 1


def test_the_next_master_of_one_that_gives_its_containers_back_does_not_keep_them() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    jobs.master_dies()
    jobs.come_back()
    jobs.wait(CHECKPOINT_WAIT + 5)
    gone(jobs)


@pytest.mark.parametrize("noted", [True, False])
def test_containers_that_were_given_back_are_none_that_were_lost(noted: bool) -> None:
    """Some executors still keep their logs when the next master comes, and others have gone."""
    jobs = World(job({"worker": 2}, policy=RestartPolicy(budget=0), grace=10, checkpoint=20), ["worker"]).run()
    jobs.suspend(REASON)
    jobs.commit(5)
    before = list(jobs.log)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED
    jobs.complete(jobs.executor_of("worker:1").container.id)
    jobs.log = jobs.log if noted else before
    jobs.master_dies()
    jobs.come_back()
    jobs.wait(30)
    gone(jobs)
    assert not jobs.noted("failed")
    jobs.resume()
    assert jobs.run().rendezvous[-1].resume == point(5, "store/step-5-1")
    assert jobs.session.state.restarts == 0


def test_a_failure_before_it_was_suspended_counts_once() -> None:
    jobs = World(job({"worker": 2}, policy=RestartPolicy(budget=1), grace=10, checkpoint=20), ["worker"]).run()
    jobs.end("worker:1", exit_code=1)
    jobs.suspend(REASON)
    jobs.obey_all()
    assert jobs.session.phase is JobState.SUSPENDED
    jobs.master_dies()
    jobs.come_back()
    gone(jobs)
    assert len(jobs.noted("failed")) == 1
    jobs.resume()
    assert jobs.run().session.phase is JobState.RUNNING


def test_one_that_was_at_rest_before_it_ran_again_is_stopped_after_a_checkpoint() -> None:
    jobs = suspended()
    jobs.resume()
    jobs.run()
    jobs.master_dies()
    jobs.suspend("again")
    jobs.come_back()
    assert (jobs.asked[-1].tasks, jobs.shut_down()[2:]) == (("worker:0",), [])
    jobs.commit(8)
    jobs.obey_all()
    gone(jobs)


def test_what_has_succeeded_while_no_master_was_there_is_no_stop() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    executors = [jobs.executor(name) for name in jobs.states]
    jobs.master_dies()
    for executor in executors:
        jobs.process_ends(executor)
        executor.settled = True
    jobs.come_back()
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def test_the_next_master_knows_that_it_was_resumed() -> None:
    jobs = suspended()
    jobs.resume()
    jobs.master_dies()
    assert jobs.session.phase is JobState.WAITING
    assert jobs.run().session.phase is JobState.RUNNING


@pytest.mark.parametrize("again", [1, 2])
def test_types_that_wait_again_are_none_that_were_lost(again: int) -> None:
    tasks = {
        "sidecar": task_type(1, ready=ReadinessProbe(port=0)),
        "worker": task_type(2, after={"sidecar": Milestone.READY}),
    }
    jobs = World(job(tasks, policy=RestartPolicy(budget=0), grace=10, checkpoint=20), ["worker"]).run()
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    jobs.commit(5)
    for _ in range(again):
        jobs.suspend(REASON)
        jobs.wait(CHECKPOINT_WAIT + 5)
        jobs.obey_all()
        gone(jobs)
        jobs.resume()
        jobs.run()
    for _ in range(2):
        jobs.master_dies()
        jobs.come_back()
        assert not jobs.noted("failed")
        assert jobs.status.message == "1 of 3 tasks running; worker waits for sidecar to be ready"
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    assert set(jobs.states.values()) == {TaskState.RUNNING}
    before = len(jobs.rendezvous)
    jobs.master_dies()
    jobs.come_back()
    assert (set(jobs.states.values()), len(jobs.rendezvous)) == ({TaskState.RUNNING}, before)


def test_nor_do_they_start_for_what_had_failed_before() -> None:
    tasks = {
        "sidecar": task_type(1, ready=ReadinessProbe(port=0)),
        "worker": task_type(2, restart=RestartScope.TASK, after={"sidecar": Milestone.READY}),
    }
    jobs = world(tasks, alone=True).run()
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    jobs.lose("worker:1")
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    jobs.run()
    before = len(jobs.rendezvous)
    jobs.master_dies()
    jobs.come_back()
    assert (len(jobs.rendezvous), jobs.session.state.restarts) == (before, 1)
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    assert set(jobs.states.values()) == {TaskState.RUNNING}


def test_nor_are_tasks_that_begin_as_they_come() -> None:
    spec = job({"worker": task_type(3, restart=RestartScope.TASK)}, policy=RestartPolicy(budget=0), grace=10)
    jobs = World(attrs.evolve(spec, start=StartRule.FIRST_COME), ["worker"], alone=True).run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    jobs.grant()
    jobs.register_all()
    jobs.start_all()
    assert jobs.status.message == "1 of 3 tasks running, 2 waiting for a container"
    jobs.master_dies()
    jobs.come_back()
    assert (jobs.session.verdict, jobs.noted("failed"), len(jobs.outstanding)) == (None, [], 2)
    jobs.run()
    assert set(jobs.states.values()) == {TaskState.RUNNING}
    assert set(jobs.starts.values()) == {2}


# ---- jobs of other shapes --------------------------------------------------------------------------------------------


def test_what_has_succeeded_is_not_run_again() -> None:
    tasks = {"worker": task_type(3, restart=RestartScope.TASK)}
    jobs = world(tasks, alone=True).run()
    jobs.end("worker:1")
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    assert jobs.states["worker:1"] is TaskState.SUCCEEDED
    jobs.resume()
    assert len(jobs.outstanding) == 2
    jobs.run()
    assert jobs.rendezvous[-1].starts.keys() == {"worker:0", "worker:2"}
    jobs.end("worker:0")
    jobs.end("worker:2")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def test_success_gets_to_the_event_log_before_its_container_is_given_back() -> None:
    tasks = {"worker": task_type(2, restart=RestartScope.TASK)}
    jobs = world(tasks, alone=True).run()
    jobs.keeps = False
    jobs.end("worker:1")
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    assert jobs.session.phase is not JobState.SUSPENDED
    jobs.keep_notes()
    gone(jobs)


def test_side_cars_and_evaluators_go_as_well() -> None:
    jobs = suspended({"chief": 1, "ps": 1, "worker": 2, "evaluator": 1, "sidecar": 1}, "chief")
    assert len(jobs.shut_down()) == 6
    jobs.resume()
    assert len(jobs.run().rendezvous[-1].starts) == 6


def test_tasks_that_begin_as_they_come() -> None:
    spec = job({"worker": task_type(3, restart=RestartScope.TASK)}, policy=RestartPolicy(budget=3), grace=10)
    jobs = World(attrs.evolve(spec, start=StartRule.FIRST_COME), ["worker"], alone=True)
    jobs.grant()
    jobs.register("worker:0")
    jobs.start_all()
    assert jobs.states["worker:0"] is TaskState.RUNNING
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    assert len(jobs.outstanding) == 3
    jobs.run()
    assert set(jobs.states.values()) == {TaskState.RUNNING}
    assert jobs.starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}  # one count for all that begin anew


def test_types_come_one_after_the_other_again() -> None:
    tasks = {
        "sidecar": task_type(1, ready=ReadinessProbe(port=0)),
        "worker": task_type(2, after={"sidecar": Milestone.READY}),
    }
    jobs = world(tasks).run()
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    assert len(jobs.outstanding) == 1
    jobs.run()
    assert jobs.states["worker:0"] is TaskState.REQUESTED
    jobs.serve("sidecar:0")
    jobs.tick()
    jobs.run()
    assert set(jobs.states.values()) == {TaskState.RUNNING}


@pytest.mark.parametrize("granted", [False, True])
def test_those_at_work_save_while_a_later_type_waits_for_its_containers(granted: bool) -> None:
    tasks = {
        "worker": task_type(1, restart=RestartScope.TASK),
        "more": task_type(1, restart=RestartScope.TASK, after={"worker": Milestone.STARTED}),
    }
    jobs = world(tasks, alone=True)
    jobs.grant()
    jobs.register_all()
    jobs.start_all()
    if granted:
        jobs.grant()
    assert jobs.session.phase is (JobState.STARTING if granted else JobState.WAITING)
    jobs.suspend(REASON)
    assert (jobs.asked[-1].tasks, jobs.stops) == (("worker:0",), [])
    assert jobs.status.message == f"suspending after the next checkpoint: {REASON}"
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    jobs.run()
    jobs.run()
    assert jobs.rendezvous[-1].resume == point(5, "store/step-5-1")
    assert set(jobs.states.values()) == {TaskState.RUNNING}


def test_what_comes_after_a_gang_that_has_succeeded() -> None:
    tasks = {"ps": 1, "worker": 2, "export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})}
    jobs = world(tasks).run()
    jobs.end("worker:0")
    jobs.end("worker:1")
    jobs.run()
    assert jobs.states["export:0"] is TaskState.RUNNING
    jobs.suspend(REASON)
    jobs.wait(CHECKPOINT_WAIT + 5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    assert len(jobs.outstanding) == 1
    jobs.run()
    jobs.end("export:0")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


EXPORTED = {"export": task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})}


@pytest.mark.parametrize("scope", [None, RestartScope.TASK])
def test_workers_that_succeed_before_they_are_stopped_keep_no_container(scope: RestartScope | None) -> None:
    jobs = world({"worker": task_type(2, restart=scope), **EXPORTED}).run()
    jobs.suspend(REASON)
    jobs.commit(5)
    assert jobs.stopped() == ["worker:0", "worker:1"]
    jobs.end("worker:0")
    jobs.end("worker:1")
    jobs.complete_all()
    gone(jobs)
    jobs.master_dies()  # the successes are on the store
    jobs.come_back()
    jobs.resume()
    jobs.run()
    assert jobs.states["export:0"] is TaskState.RUNNING
    jobs.end("export:0")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def stopping(tasks: dict[str, Any]) -> World:
    """A job that stops for a suspension. Its event log reaches the store when ``keep_notes`` is called."""
    jobs = world(tasks).run()
    jobs.keeps = False
    jobs.suspend(REASON)
    jobs.commit(5)
    return jobs


@pytest.mark.parametrize("later", [False, True])
def test_a_job_resumed_while_a_success_is_being_recorded_restarts_the_others(later: bool) -> None:
    jobs = stopping({"worker": task_type(2, restart=RestartScope.TASK), **EXPORTED})
    jobs.end("worker:0")
    jobs.obey("worker:1")
    if later:
        jobs.tick()
    jobs.resume()
    jobs.keep_notes()
    assert jobs.rendezvous[-1].starts.keys() == {"worker:1"}
    assert len(jobs.rendezvous) == 2


@pytest.mark.parametrize("later", [False, True])
def test_a_job_resumed_while_its_gangs_success_is_being_recorded_goes_on(later: bool) -> None:
    jobs = stopping({"worker": 2, **EXPORTED})
    jobs.end("worker:0")
    jobs.end("worker:1")
    if later:
        jobs.tick()
    jobs.resume()
    jobs.keep_notes()
    jobs.complete_all()
    jobs.keeps = True
    jobs.run()
    jobs.end("export:0")
    jobs.complete_all()
    assert jobs.verdict.status is FinalStatus.SUCCEEDED


def test_a_gang_that_went_on_smaller_comes_again_whole() -> None:
    jobs = world({"worker": task_type(3, min_instances=2)}, replacement=60.0).run()
    jobs.lose("worker:1")
    jobs.obey_all()
    jobs.wait(61)
    jobs.start_all()
    assert jobs.session.without == {"worker:1"}
    jobs.suspend(REASON)
    jobs.commit(5)
    jobs.obey_all()
    gone(jobs)
    jobs.resume()
    assert set(jobs.run().rendezvous[-1].starts) == {"worker:0", "worker:1", "worker:2"}


def test_programs_that_write_to_the_store_themselves() -> None:
    jobs = world(mirror=MirrorScope.OFF).run()
    jobs.suspend(REASON)
    assert jobs.asked[-1].tasks == ("worker:0",)
    jobs.wait(CHECKPOINT_WAIT + 5)
    jobs.obey_all()
    gone(jobs)


# ---- what people see -------------------------------------------------------------------------------------------------


def test_what_is_said_of_it() -> None:
    jobs = world().run()
    jobs.suspend(REASON)
    assert jobs.status.message == f"suspending after the next checkpoint: {REASON}"
    jobs.commit(5)
    assert jobs.status.message == f"suspending: stopping worker:0, worker:1; {REASON}"
    jobs.obey("worker:0")
    jobs.obey("worker:1", settles=False)
    assert jobs.status.message == f"suspending: copying the last checkpoint of worker:1; {REASON}"
    jobs.settle("worker:1")
    assert jobs.status.message == f"{REASON}; `airflow tony resume` resumes the job"
    jobs.resume()
    assert jobs.status.message.startswith("waiting for 2 of 2 containers")


def test_where_its_time_went() -> None:
    jobs = suspended()
    before = jobs.status.times
    assert before
    jobs.wait(3600)
    after = jobs.status.times
    assert after
    assert after.suspended - before.suspended == pytest.approx(3600, abs=1)
    assert (after.training, after.restarts, after.allocation) == (before.training, before.restarts, before.allocation)
    jobs.resume()
    jobs.wait(100)
    times = jobs.status.times
    assert times
    assert times.allocation - after.allocation == pytest.approx(100, abs=1)
    assert times.suspended == after.suspended


def test_the_time_without_a_master_is_of_the_suspension_too() -> None:
    jobs = suspended()
    jobs.wait(100)
    jobs.master_dies()
    jobs.wait(100)
    times = jobs.status.times
    assert times
    assert times.suspended >= 200
