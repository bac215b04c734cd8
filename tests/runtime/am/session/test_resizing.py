"""Resized jobs: more tasks of a type, or fewer, from the next checkpoint on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.am.session.session_events import ResizeOrder
from tony_provider.runtime.jobspec.model import Milestone, MirrorScope, RestartPolicy, Role, ranks
from tony_provider.runtime.protocol.status import FinalStatus, JobState

REPLACEMENT = 60
ALLOCATION = 120.0


def world(tasks: dict[str, Any] | None = None, instances: int = 2, **how: Any) -> World:
    tasks = tasks or {"worker": task_type(instances, min_instances=1, max_instances=4)}
    spec = job(tasks, policy=RestartPolicy(budget=3), replacement=REPLACEMENT, grace=10, checkpoint=20, **how)
    return World(spec, ["worker"])


def grown() -> World:
    """From two to four, with step 5."""
    gang = world().run()
    gang.resize(worker=4)
    gang.grant_all()
    gang.register_all()
    gang.commit(5)
    gang.obey_all()
    gang.start_all()
    return gang


def workers(gang: World) -> list[str]:
    """Those that take part in the newest generation, as all are told."""
    return [f"{task.type}:{task.index}" for task in gang.rendezvous[-1].cluster.tasks]


def succeeds(gang: World) -> None:
    gang.restarted()
    for task in gang.session.tasks:
        gang.end(task.name)
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED
    assert not gang.outstanding
    assert not gang.held


def only_export_is_left(gang: World) -> None:
    assert len(gang.outstanding) == 1
    gang.run()
    gang.end("export:0")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED


# ---- more --------------------------------------------------------------------------------------------------------


def test_a_gang_grows_once_its_new_executors_are_there_and_there_is_a_checkpoint() -> None:
    gang = world().run()
    gang.resize("the night is free", worker=4)
    assert len(gang.outstanding) == 2
    assert (gang.session.phase, gang.status.resizing) == (JobState.RUNNING, {"worker": 4})
    assert gang.status.message == "2 of 4 tasks running; growing to 4 workers: waiting for 2 containers"
    gang.grant_all()
    assert gang.status.message.endswith("growing to 4 workers: waiting for worker:2, worker:3 to register")
    gang.register_all()
    assert not gang.stops
    gang.tick()
    assert gang.asked[-1].tasks == ("worker:0",)
    assert gang.status.message.endswith("growing to 4 workers, after the next checkpoint")
    gang.commit(5)
    assert gang.stopped() == ["worker:0", "worker:1"]
    gang.obey_all()
    assert gang.rendezvous[-1].starts == {f"worker:{index}": 2 for index in range(4)}
    assert gang.rendezvous[-1].resume == point(5, "store/step-5-1")
    gang.start_all()
    assert (gang.status.message, gang.status.resizing) == ("4 of 4 tasks running", {})
    assert gang.noted("resizing") == ["2 workers -> 4: the night is free"]
    assert gang.noted("resized") == ["worker: resized to 4"]
    succeeds(gang)


def test_it_grows_by_those_that_came_where_others_do_not() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant()
    gang.register_all()
    gang.commit(5)
    assert not gang.stops
    gang.wait(ALLOCATION + CHECKPOINT_WAIT + 3)
    gang.obey_all()
    gang.start_all()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    assert gang.status.message == "3 of 4 tasks running; growing to 4 workers: waiting for 1 container"
    gang.grant_all()
    gang.register_all()
    gang.commit(8)
    gang.obey_all()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2", "worker:3"]
    succeeds(gang)


def test_growing_is_no_hindrance_to_those_that_work() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.wait(10_000)
    assert gang.session.phase is JobState.RUNNING
    gang.end("worker:0")
    gang.end("worker:1")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED
    assert not gang.outstanding


def test_a_failure_meanwhile_is_decided_as_ever_and_brings_in_who_is_there() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant()
    gang.register_all()
    gang.end("worker:1", exit_code=1)
    gang.obey_all()
    gang.tick(6)
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    assert gang.status.resizing == {"worker": 4}
    succeeds(gang)


def test_growing_while_one_is_lost() -> None:
    gang = world().run()
    gang.commit(5)
    gang.lose("worker:1")
    gang.resize(worker=3)
    gang.obey_all()
    assert len(gang.outstanding) == 2
    gang.wait(REPLACEMENT + 1)
    assert workers(gang) == ["worker:0"]
    gang.start_all()
    gang.grant_all()
    gang.register_all()
    gang.commit(8)
    gang.obey_all()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    assert gang.noted("resized") == ["worker: resized to 3"]
    succeeds(gang)


def test_containers_that_are_lost_again_and_again_end_the_growth_and_not_the_job() -> None:
    gang = world().run()
    gang.resize(worker=3)
    for _ in range(6):
        if gang.outstanding:
            gang.grant()
            gang.lose("worker:2", 65)
    assert gang.session.verdict is None
    assert gang.noted("resized") == ["worker: resized to 2 of 3"]
    gang.resize(worker=2)
    gang.resize(worker=3)  # once more, then
    assert len(gang.outstanding) == 1
    succeeds(gang)


def test_those_that_no_more_containers_were_asked_for_are_asked_for_by_somebodys_word() -> None:
    gang = world().run()
    gang.resize(worker=3)
    while gang.outstanding:
        gang.grant()
        gang.lose("worker:2", 65)
    gang.resize("the nodes are repaired", worker=3)
    assert len(gang.outstanding) == 1
    gang.lose("worker:1")
    gang.obey_all()
    gang.run()
    gang.commit(5)
    gang.restarted()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    succeeds(gang)


def test_in_the_queue_all_are_waited_for() -> None:
    gang = world()
    gang.grant()
    gang.resize(worker=3)
    assert gang.status.message.startswith("waiting for 2 of 3 containers")
    gang.run()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    assert gang.generation == 1
    assert gang.noted("resized") == ["worker: resized to 3"]


def test_in_the_pause_after_all_was_given_back_they_are_asked_for_with_the_others() -> None:
    gang = world()
    gang.grant()
    gang.wait(ALLOCATION + 2)
    assert not gang.outstanding
    gang.resize(worker=4)
    assert not gang.outstanding
    gang.wait(ALLOCATION)
    assert len(gang.outstanding) == 4
    gang.run()
    assert len(workers(gang)) == 4
    assert gang.generation == 1


def test_while_executors_start_the_others_begin_first() -> None:
    gang = world()
    gang.grant_all()
    assert gang.session.phase is JobState.STARTING
    gang.resize(worker=3)
    gang.register_all()
    gang.start_all()
    assert sorted(gang.rendezvous[-1].starts) == ["worker:0", "worker:1"]
    gang.grant_all()
    gang.register_all()
    gang.commit(5)
    gang.obey_all()
    assert len(workers(gang)) == 3
    succeeds(gang)


# ---- fewer -------------------------------------------------------------------------------------------------------


def test_a_gang_shrinks_at_a_checkpoint() -> None:
    gang = grown()
    gang.resize("it is day", worker=2)
    assert gang.status.message == "4 of 4 tasks running; shrinking to 2 workers, after the next checkpoint"
    assert gang.asked[-1].tasks == ("worker:0",)
    before = len(gang.stops)
    gang.tick()
    assert len(gang.stops) == before
    gang.commit(8)
    assert gang.stopped()[before:] == ["worker:0", "worker:1", "worker:2", "worker:3"]
    gang.obey("worker:0")
    gang.obey("worker:1")
    gang.obey("worker:2")
    assert gang.shut_down() == []
    gang.obey("worker:3")
    assert gang.shut_down() == ["worker:2", "worker:3"]
    sent = gang.rendezvous[-1]
    assert (sent.starts, sent.resume) == ({"worker:0": 3, "worker:1": 3}, point(8, "store/step-8-2"))
    assert ranks(sent.cluster.tasks) == {("worker", 0): 0, ("worker", 1): 1}
    assert list(gang.states) == ["worker:0", "worker:1"]
    gang.start_all()
    assert (gang.status.message, gang.status.resizing) == ("2 of 2 tasks running", {})
    assert gang.status.use[0].tasks == 2
    succeeds(gang)


def test_it_shrinks_after_a_time_where_no_checkpoint_comes() -> None:
    gang = grown()
    gang.resize(worker=2)
    gang.wait(CHECKPOINT_WAIT - 1)
    assert gang.generation == 2
    gang.wait(3)
    gang.obey_all()
    assert sorted(gang.rendezvous[-1].starts) == ["worker:0", "worker:1"]


def test_last_copies_of_those_that_go_count() -> None:
    gang = world(instances=2, mirror=MirrorScope.ALL).run()
    gang.resize(worker=1)
    assert gang.asked[-1].tasks == ("worker:0", "worker:1")
    gang.commit(5)
    gang.obey("worker:0")
    gang.obey("worker:1", settles=False)
    assert gang.commit(6, "worker:1") is None
    gang.settle("worker:1")
    assert workers(gang) == ["worker:0"]
    assert gang.rendezvous[-1].resume == point(6, "store/step-6-1")


def test_what_was_asked_for_in_vain_is_withdrawn_at_once() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant()
    gang.register_all()
    gang.resize(worker=2)
    assert not gang.outstanding
    assert gang.shut_down() == ["worker:2"]
    assert not gang.stops
    assert gang.status.message == "2 of 2 tasks running"
    succeeds(gang)


def test_below_what_is_there_while_it_waits_for_more() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant()
    gang.register_all()
    gang.resize(worker=1)
    gang.commit(5)
    gang.obey_all()
    assert workers(gang) == ["worker:0"]
    assert not gang.outstanding
    succeeds(gang)


def test_in_the_queue_it_may_be_enough_then() -> None:
    gang = world()
    gang.grant()
    gang.resize(worker=1)
    assert gang.session.phase is JobState.STARTING
    gang.run()
    assert workers(gang) == ["worker:0"]
    succeeds(gang)


def test_one_that_was_lost_need_not_come_again() -> None:
    gang = world().run()
    gang.lose("worker:1")
    gang.obey_all()
    assert gang.outstanding
    gang.resize(worker=1)
    gang.tick()
    assert workers(gang) == ["worker:0"]
    assert not gang.outstanding
    succeeds(gang)


def test_a_failure_whose_cause_is_not_known_yet_is_decided_first() -> None:
    gang = world().run()
    gang.end("worker:1", signal=9)
    gang.resize(worker=1)
    gang.tick()
    gang.obey_all()
    gang.wait(6)
    assert gang.noted("failed")
    assert workers(gang) == ["worker:0"]
    succeeds(gang)


# ---- again, and anew ---------------------------------------------------------------------------------------------


def test_up_and_down_and_up_again() -> None:
    gang = grown()
    gang.resize(worker=2)
    gang.commit(8)
    gang.obey_all()
    gang.start_all()
    gang.resize(worker=3)
    gang.grant_all()
    assert gang.attempt("worker:2") == 2
    gang.register_all()
    gang.commit(11)
    gang.obey_all()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    assert gang.noted("resized") == ["worker: resized to 4", "worker: resized to 2", "worker: resized to 3"]
    succeeds(gang)


def test_a_second_word_counts_before_the_first_is_done() -> None:
    gang = grown()
    gang.resize(worker=2)
    gang.resize(worker=3)
    gang.commit(8)
    gang.obey_all()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    gang.start_all()
    gang.resize(worker=1)
    gang.resize(worker=3)
    gang.commit(9)
    gang.wait(CHECKPOINT_WAIT + 3)
    assert gang.generation == 3
    assert gang.status.resizing == {}
    succeeds(gang)


def test_asked_twice_nothing_changes() -> None:
    gang = world().run()
    gang.resize(worker=2)
    assert not gang.noted("resizing")
    gang.resize(worker=4)
    gang.resize(worker=4)
    assert len(gang.noted("resizing")) == 1
    assert len(gang.outstanding) == 2


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({}, 'tasks: give the number of tasks for at least one type, such as {"worker": 4}'),
        ({"wroker": 2}, "tasks.wroker: the job has no such task type; it has worker, evaluator"),
        ({"evaluator": 2}, "tasks.evaluator: cannot be resized, because the job sets no max_instances for this type"),
        ({"worker": 5}, "tasks.worker: 5 is not between 1 and 4, the job's min_instances and max_instances"),
        ({"worker": 0}, "tasks.worker: 0 is not between 1 and 4, the job's min_instances and max_instances"),
    ],
)
def test_what_the_job_does_not_allow_is_refused_and_changes_nothing(counts: dict[str, int], why: str) -> None:
    gang = world({"worker": task_type(2, min_instances=1, max_instances=4), "evaluator": 1}).run()
    assert gang.session.resizing.refusal(counts) == why
    gang.handle(ResizeOrder(counts, "why not"))
    assert not gang.noted("resizing")
    assert gang.status.resizing == {}


def test_without_min_instances_it_never_has_fewer_than_at_its_start() -> None:
    gang = world({"worker": task_type(2, max_instances=4)})
    assert gang.session.resizing.refusal({"worker": 1}) == (
        "tasks.worker: 1 is not between 2 and 4, the job's instances and max_instances"
    )
    assert gang.session.resizing.refusal({"worker": 2}) is None


def test_a_gang_that_has_succeeded_is_not_resized() -> None:
    export = task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})
    gang = world({"worker": task_type(2, max_instances=4), "export": export}).run()
    gang.resize(worker=4)
    gang.end("worker:0")
    gang.end("worker:1")
    assert gang.session.resizing.is_too_late
    assert gang.noted("resized") == ["worker: not resized, because the gang does not restart any more"]
    gang.resize(worker=3)
    assert len(gang.noted("resizing")) == 1
    only_export_is_left(gang)


def test_a_type_that_is_not_there_yet_only_has_another_number() -> None:
    gang = world({"prepare": 1, "worker": task_type(2, max_instances=4)}).run()
    gang.resize(worker=4)
    assert not gang.outstanding
    gang.end("prepare:0")
    assert len(gang.outstanding) == 4
    gang.run()
    assert len(gang.rendezvous[-1].starts) == 4
    assert gang.session.without == frozenset()


# ---- suspended ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 4])
def test_a_suspended_job_only_has_another_number(number: int) -> None:
    gang = world().run()
    gang.suspend()
    gang.commit(5)
    gang.obey_all()
    gang.resize(worker=number)
    assert gang.session.phase is JobState.SUSPENDED
    assert not gang.outstanding
    assert gang.noted("resized") == [f"worker: resized to {number}"]
    gang.complete_all()
    gang.master_dies()
    gang.wait(100)
    gang.resume()
    assert len(gang.outstanding) == number
    gang.run()
    assert workers(gang) == [f"worker:{index}" for index in range(number)]
    assert gang.rendezvous[-1].resume == point(5, "store/step-5-1")
    succeeds(gang)


def test_one_that_is_about_to_be_suspended_is_resized_then() -> None:
    gang = world().run()
    gang.suspend()
    gang.resize(worker=4)
    assert not gang.outstanding
    gang.commit(5)
    gang.obey_all()
    gang.complete_all()
    gang.resume()
    assert len(gang.outstanding) == 4


def test_one_that_is_suspended_while_it_grows_does_not_grow_first() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant_all()
    gang.register_all()
    gang.suspend()
    gang.commit(5)
    gang.obey_all()
    assert gang.session.phase is JobState.SUSPENDED
    assert (gang.session.state.restarts, gang.noted("restarting")) == (0, [])
    gang.complete_all()
    gang.resume()
    assert len(gang.outstanding) == 4
    succeeds(gang)


def test_one_that_is_not_suspended_after_all_grows_then() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant_all()
    gang.register_all()
    gang.suspend()
    gang.tick()
    gang.resume()
    gang.tick()
    gang.commit(5)
    gang.obey_all()
    assert len(workers(gang)) == 4
    succeeds(gang)


# ---- the next application master ---------------------------------------------------------------------------------


def test_the_next_master_goes_on_growing() -> None:
    gang = world().run()
    gang.resize(worker=4)
    gang.grant()
    gang.register_all()
    gang.master_dies()
    gang.come_back()
    gang.wait(60)
    assert (gang.session.phase, gang.status.resizing) == (JobState.RUNNING, {"worker": 4})
    assert len(gang.outstanding) == 1
    gang.grant_all()
    gang.register_all()
    gang.commit(8)
    gang.obey_all()
    assert len(workers(gang)) == 4
    succeeds(gang)


def test_the_next_master_goes_on_shrinking() -> None:
    gang = grown()
    gang.resize(worker=2)
    gang.master_dies()
    gang.come_back()
    assert gang.status.resizing == {"worker": 2}
    gang.commit(8)
    gang.obey_all()
    assert sorted(gang.rendezvous[-1].starts) == ["worker:0", "worker:1"]
    succeeds(gang)


def test_the_next_master_takes_nobody_for_lost_whose_container_was_replaced_meanwhile() -> None:
    tasks = {"worker": task_type(2, max_instances=4)}
    gang = World(job(tasks, policy=RestartPolicy(budget=0), grace=10, checkpoint=20), ["worker"]).run()
    gang.resize(worker=3)
    gang.grant_all()
    gang.register_all()
    gang.commit(5)
    gang.obey("worker:0")
    gang.lose("worker:1")
    gang.master_dies()
    gang.come_back()
    assert gang.noted("failed") == []
    gang.restarted()
    assert workers(gang) == ["worker:0", "worker:1", "worker:2"]
    succeeds(gang)


def test_the_next_master_knows_how_many_there_are() -> None:
    gang = grown()
    before = len(gang.rendezvous)
    gang.master_dies()
    gang.come_back()
    assert (gang.session.phase, len(gang.session.tasks)) == (JobState.RUNNING, 4)
    assert (len(gang.rendezvous), gang.status.resizing) == (before, {})
    succeeds(gang)


def test_the_next_master_learns_from_those_that_have_just_come_that_they_take_part() -> None:
    """The event log does not know yet that their generation has begun."""
    gang = world(mirror=MirrorScope.ALL).run()
    gang.resize(worker=4)
    gang.grant_all()
    gang.register_all()
    written = list(gang.log)
    gang.commit(5)
    gang.obey_all()
    gang.start_all()
    gang.log = written
    gang.master_dies()
    gang.come_back()
    assert (gang.session.phase, gang.generation, len(gang.rendezvous)) == (JobState.RUNNING, 2, 2)
    assert gang.session.without == frozenset()
    assert len(gang.session.mirror_ranks()) == 4
    gang.tick()
    assert gang.status.message == "4 of 4 tasks running"
    succeeds(gang)


def test_the_next_master_sends_away_who_was_dismissed() -> None:
    gang = grown()
    gang.resize(worker=3)
    gang.commit(8)
    gang.obey_all()
    gang.start_all()
    assert "worker:3" in {executor.task for executor in gang.executors.values()}
    gang.master_dies()
    gang.come_back()
    assert list(gang.states) == ["worker:0", "worker:1", "worker:2"]
    assert gang.session.phase is JobState.RUNNING
    gang.resize(worker=4)
    assert gang.attempt("worker:3") == 2  # its logs are not those of the one before
    succeeds(gang)


def test_the_next_master_asks_for_nobody_who_was_to_join_a_gang_that_has_succeeded() -> None:
    """The type of who was to join has waited for another, too, and begun."""
    export = task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})
    gang = world({"prepare": 1, "worker": task_type(1, max_instances=3), "export": export}).run()
    gang.end("prepare:0")
    gang.run()
    gang.resize(worker=2)
    gang.end("worker:0")
    gang.master_dies()
    gang.wait(100)
    only_export_is_left(gang)


def test_the_next_master_of_a_suspended_job_begins_with_those_that_were_added_meanwhile() -> None:
    gang = world({"prepare": 1, "worker": task_type(1, max_instances=3)}).run()
    gang.end("prepare:0")
    gang.run()
    gang.suspend()
    gang.commit(5)
    gang.obey_all()
    gang.resize(worker=2)
    gang.complete_all()
    gang.master_dies()
    gang.wait(100)
    gang.resume()
    gang.run()
    assert sorted(gang.rendezvous[-1].starts) == ["worker:0", "worker:1"]
