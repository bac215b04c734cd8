"""What the queue has to spare: taken after a while, given back under preemption, and not taken back from people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.runtime.am.session.world import World, job, point, task_type
from tony_provider.runtime.am.resource_manager import ExitReason, Room
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.jobspec.model import GrowRule, Milestone, RestartPolicy, Role, TaskSpec, ranks
from tony_provider.runtime.protocol.status import FinalStatus, JobState, TaskState

SPARE = 100
ALLOCATION = 30
REPLACEMENT = 60
MEMORY = 2048  # MiB, of each worker


def spare(instances: int = 2, most: int = 4, **how: Any) -> TaskSpec:
    return task_type(instances, max_instances=most, grow=GrowRule.SPARE, **how)


def world(tasks: dict[str, Any] | None = None) -> World:
    spec = job(
        tasks or {"worker": spare()},
        policy=RestartPolicy(budget=1),
        replacement=REPLACEMENT,
        allocation=ALLOCATION,
        spare=SPARE,
        grace=10,
        checkpoint=20,
    )
    return World(spec, ["worker"])


def comes_up(gang: World, step: int) -> World:
    """Whoever was asked for comes, and the gang starts again from a checkpoint."""
    gang.grant_all()
    gang.register_all()
    gang.commit(step)
    gang.obey_all()
    gang.start_all()
    return gang


def grown(tasks: dict[str, Any] | None = None) -> World:
    """One of four, two of which the queue had to spare."""
    gang = world(tasks).run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    comes_up(gang, 5)
    gang.room = 0
    gang.tick()
    assert workers(gang) == [0, 1, 2, 3]
    return gang


def workers(gang: World) -> list[int]:
    return [task.index for task in gang.rendezvous[-1].cluster.tasks if task.type == "worker"]


def gone(gang: World) -> None:
    """The containers that were given back have ended."""
    for container_id in sorted((gang.leaving | gang.released) - gang.completed):
        gang.complete(container_id)


def vacant(gang: World) -> list[str]:
    return [task.name for task in gang.session.tasks if task.unrequested]


def succeeds(gang: World) -> None:
    gang.obey_all()
    gang.start_all()
    for task in gang.session.tasks:
        if task.type == "worker" and task.runs:
            gang.end(task.name)
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED
    assert not gang.outstanding
    assert gang.held <= gang.left


# ---- taking ------------------------------------------------------------------------------------------------------


def test_what_was_free_for_long_enough_is_taken() -> None:
    gang = world().run()
    gang.room = 10
    gang.tick()
    assert gang.status.message == "2 of 2 tasks running; growing to up to 4 workers when the queue has spare room"
    assert [(look.request.memory, look.most) for look in gang.looks] == [(MEMORY, 2)]
    gang.wait(SPARE - 2)
    assert not gang.outstanding
    gang.wait(3)
    assert len(gang.outstanding) == 2
    assert gang.status.resizing == {"worker": 4}
    assert gang.status.message == (
        "2 of 4 tasks running; growing to 4 workers, because the queue has spare room: waiting for 2 containers"
    )
    comes_up(gang, 5)
    assert workers(gang) == [0, 1, 2, 3]
    assert gang.rendezvous[-1].resume == point(5, "store/step-5-1")
    assert gang.noted("resizing") == ["2 workers -> 4: the queue has had spare room for 1 min 40 s"]
    assert gang.noted("resized") == ["worker: resized to 4"]
    succeeds(gang)


def test_it_looks_again_and_again_as_long_as_there_could_be_more() -> None:
    gang = world().run()
    gang.wait(4 * SPARE)
    assert len(gang.looks) >= 4
    assert not gang.outstanding
    gang = grown()
    looks = len(gang.looks)
    gang.wait(3 * SPARE)
    assert len(gang.looks) == looks


def test_no_more_than_the_least_that_was_found() -> None:
    gang = world({"worker": spare(2, 9)}).run()
    gang.room = 5
    gang.tick()
    gang.room = 1
    gang.wait(SPARE / 2 + 1)
    gang.room = 5
    gang.wait(SPARE / 2 + 1)
    assert gang.status.resizing == {"worker": 3}


@pytest.mark.parametrize(("most", "looks"), [(9, 2), (3, 1)])
def test_it_looks_for_no_more_than_it_has_or_lacks(most: int, looks: int) -> None:
    """What is looked for is kept from others for a moment."""
    gang = world({"worker": spare(2, most)}).run()
    gang.room = 5
    gang.tick()
    assert [look.most for look in gang.looks] == [looks]


def test_room_that_is_not_there_any_more_is_left() -> None:
    gang = world().run()
    for _ in range(4):
        gang.room = 5
        gang.wait(SPARE / 2)
        gang.room = 0
        gang.wait(SPARE / 2)
    assert not gang.outstanding
    gang.room = 5
    gang.wait(2 * SPARE)
    assert gang.noted("resizing")


def test_it_waits_for_the_answer() -> None:
    gang = world().run()
    gang.room = None
    gang.wait(5 * SPARE)
    assert len(gang.looks) == 1
    gang.handle(Room(gang.looks[0].request.key + 1, 2))  # of another look
    gang.handle(Room(gang.looks[0].request.key, 2))
    gang.room = 2
    gang.wait(SPARE + 1)
    assert gang.status.resizing == {"worker": 4}


def test_a_type_that_is_only_asked_takes_nothing() -> None:
    gang = world({"worker": task_type(2, max_instances=4)}).run()
    gang.room = 100
    gang.wait(3 * SPARE)
    assert not gang.looks
    assert not gang.outstanding


def test_not_while_something_is_about_to_change() -> None:
    gang = world().run()
    gang.room = 5
    gang.tick()
    gang.wait(SPARE - 5)
    gang.end("worker:1", exit_code=1)
    gang.tick(6)
    gang.obey_all()
    gang.start_all()
    gang.room = 5
    gang.wait(SPARE - 5)
    assert not gang.outstanding
    gang.wait(10)
    assert gang.status.resizing == {"worker": 4}


def test_what_nobody_gives_is_not_asked_for_any_longer_and_later_again() -> None:
    gang = world().run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    assert len(gang.outstanding) == 2
    gang.wait(REPLACEMENT + 1)
    assert not gang.outstanding
    assert not gang.stops
    assert gang.status.resizing == {}
    assert gang.noted("resizing")[-1] == (
        "4 workers -> 2: 2 containers not granted within 60 s (timeouts.replacement); next attempt in 1 min 40 s"
    )
    for times in (1, 2):
        gang.room = 2
        gang.wait(times * SPARE - 5)
        assert not gang.outstanding
        gang.wait(10)
        assert len(gang.outstanding) == 2
        gang.wait(REPLACEMENT)
        assert not gang.outstanding
    succeeds(gang)


def test_those_that_came_stay() -> None:
    gang = world().run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    gang.grant()
    gang.register_all()
    gang.wait(REPLACEMENT + CHECKPOINT_WAIT)
    gang.obey_all()
    gang.start_all()
    assert workers(gang) == [0, 1, 2]
    assert not gang.outstanding
    assert gang.noted("resized") == ["worker: resized to 3"]
    succeeds(gang)


def test_one_whose_containers_are_lost_again_and_again_is_left_until_there_is_room_again() -> None:
    gang = world().run()
    for _ in range(2):
        gang.room = 1
        gang.tick()
        gang.wait(SPARE + 1)
        while gang.outstanding:
            gang.grant()
            gang.lose("worker:2", 65)
        assert gang.status.resizing == {}
        assert vacant(gang) == ["worker:2"]
    gang.tick()
    gang.wait(SPARE + 1)
    comes_up(gang, 5)
    assert workers(gang) == [0, 1, 2]
    succeeds(gang)


def test_somebodys_word_is_waited_for_as_long_as_it_takes() -> None:
    gang = world().run()
    gang.resize("the night is free", worker=3)
    gang.wait(10 * REPLACEMENT)
    assert len(gang.outstanding) == 1
    comes_up(gang, 5)
    assert workers(gang) == [0, 1, 2]


def test_types_take_it_in_the_order_of_the_specification() -> None:
    gang = world({"worker": spare(1, 2), "helper": spare(1, 3, role=Role.WORKER)}).run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    assert gang.status.resizing == {"worker": 2}
    comes_up(gang, 5)
    gang.room = 1
    gang.tick()
    gang.wait(SPARE + 1)
    assert gang.status.resizing == {"helper": 2}


# ---- giving back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_what_the_cluster_wants_is_given_back_once_there_is_a_checkpoint(taken: int) -> None:
    gang = grown()
    asked = len(gang.asked)
    gang.preempt(f"worker:{taken}")
    assert len(gang.asked) == asked + 1
    assert "shrinking to 3 workers, because the cluster reclaims containers" in gang.status.message
    gang.commit(9)
    gang.obey_all()
    assert gang.shut_down() == [f"worker:{taken}"]
    left = [index for index in range(4) if index != taken]
    assert workers(gang) == left
    sent = gang.rendezvous[-1]
    assert sent.resume == point(9, "store/step-9-2")
    assert sorted(ranks(sent.cluster.tasks).values()) == [0, 1, 2]
    gone(gang)
    gang.start_all()
    assert not gang.outstanding
    assert vacant(gang) == ([] if taken == 3 else [f"worker:{taken}"])
    assert gang.status.message == "3 of 3 tasks running; growing to up to 4 workers when the queue has spare room"
    assert gang.status.use[0].tasks == 3
    assert not gang.noted("failed")
    succeeds(gang)


def test_it_is_taken_again_when_there_is_room_and_the_vacant_come_first() -> None:
    gang = grown()
    gang.preempt("worker:1", "worker:2")
    gang.commit(9)
    gang.obey_all()
    gone(gang)
    gang.start_all()
    assert workers(gang) == [0, 3]
    gang.room = 2
    gang.wait(SPARE / 2 - 5)
    gang.room = 1
    gang.wait(SPARE / 2)
    assert not gang.outstanding
    gang.wait(10)
    assert gang.status.resizing == {"worker": 3}
    comes_up(gang, 12)
    assert workers(gang) == [0, 1, 3]
    gang.room = 1
    gang.tick()
    gang.wait(SPARE + 1)
    comes_up(gang, 15)
    assert workers(gang) == [0, 1, 2, 3]
    succeeds(gang)


def test_what_is_killed_first_is_not_replaced_and_not_waited_for() -> None:
    gang = grown()
    gang.lose("worker:1", ExitReason.PREEMPTED)
    gang.obey_all()
    gang.tick()
    assert workers(gang) == [0, 2, 3]
    assert not gang.outstanding
    gang.start_all()
    assert gang.status.message.startswith("3 of 3 tasks running")
    assert gang.session.groups.gang.budget.times == []
    succeeds(gang)


def test_killed_while_the_checkpoint_is_waited_for() -> None:
    gang = grown()
    gang.preempt("worker:1", "worker:2")
    gang.lose("worker:1", ExitReason.PREEMPTED)
    gang.lose("worker:2", ExitReason.PREEMPTED)
    gang.obey_all()
    gang.tick()
    assert workers(gang) == [0, 3]
    assert not gang.outstanding
    gang.start_all()
    gang.tick()
    assert gang.status.resizing == {}
    succeeds(gang)


def test_what_the_job_needs_is_replaced_as_ever() -> None:
    gang = grown()
    gang.preempt("worker:0", "worker:1", "worker:3")
    assert gang.status.resizing == {"worker": 2}
    gang.commit(9)
    gang.obey_all()
    assert workers(gang) == [0, 2] or workers(gang) == [2, 0]
    gang.start_all()
    gang.lose("worker:0", ExitReason.PREEMPTED)
    gang.obey_all()
    assert len(gang.outstanding) == 1
    gang.run()
    assert workers(gang) == [0, 2]
    succeeds(gang)


def test_while_it_grows_what_is_to_come_goes_first() -> None:
    gang = world().run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    gang.grant()
    gang.preempt("worker:1")
    assert not gang.outstanding
    assert gang.status.resizing == {}
    assert not gang.stops
    assert gang.asked[-1].reason == "the cluster reclaims containers in 15 s"
    succeeds(gang)


def test_one_that_is_to_come_is_preempted() -> None:
    gang = world().run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    gang.grant_all()
    gang.lose("worker:2", ExitReason.PREEMPTED)
    assert not gang.outstanding
    assert gang.status.resizing == {"worker": 3}
    gang.register_all()
    gang.commit(5)
    gang.obey_all()
    gang.start_all()
    assert workers(gang) == [0, 1, 3]
    succeeds(gang)


def test_one_that_is_lost_otherwise_is_replaced_or_done_without() -> None:
    gang = grown()
    gang.lose("worker:1", ExitReason.LOST)
    gang.obey_all()
    assert len(gang.outstanding) == 1
    gang.wait(REPLACEMENT + 1)
    gang.start_all()
    assert workers(gang) == [0, 2, 3]
    comes_up(gang, 9)
    assert workers(gang) == [0, 1, 2, 3]
    succeeds(gang)


def test_below_what_it_needs_it_waits_for_that_and_no_more() -> None:
    gang = grown()
    gang.preempt("worker:1")
    gang.commit(9)
    gang.obey_all()
    gang.start_all()
    for name in ("worker:0", "worker:2"):
        gang.lose(name)
    gang.obey_all()
    gang.wait(REPLACEMENT + 2)
    gang.complete_all()
    gang.wait(ALLOCATION + 1)
    assert len(gang.outstanding) == 2
    gang.run()
    assert workers(gang) == [0, 1]
    assert vacant(gang) == []
    succeeds(gang)


# ---- on request --------------------------------------------------------------------------------------------------


def test_what_somebody_has_asked_for_is_not_taken_back() -> None:
    gang = grown()
    gang.resize("others need it", worker=3)
    gang.commit(9)
    gang.obey_all()
    gone(gang)
    gang.start_all()
    assert gang.status.message == "3 of 3 tasks running"
    gang.room = 5
    gang.wait(3 * SPARE)
    assert not gang.outstanding
    gang.master_dies()
    gang.come_back()
    gang.room = 5
    gang.tick()
    gang.wait(3 * SPARE)
    assert not gang.outstanding
    gang.resize("nobody does any more", worker=4)
    comes_up(gang, 12)
    assert workers(gang) == [0, 1, 2, 3]
    succeeds(gang)


def test_more_by_somebodys_word_lifts_it() -> None:
    gang = grown()
    gang.resize("others need it", worker=2)
    gang.commit(9)
    gang.obey_all()
    gang.start_all()
    gang.resize("some do", worker=3)
    comes_up(gang, 12)
    gang.room = 1
    gang.tick()
    gang.wait(SPARE + 1)
    assert gang.status.resizing == {"worker": 4}


def test_as_many_as_there_are_is_a_word_too() -> None:
    gang = world().run()
    gang.resize("no more, please", worker=2)
    assert gang.noted("resizing") == ["worker: at most 2 from now on: no more, please"]
    gang.resize("no more, please", worker=2)
    assert len(gang.noted("resizing")) == 1
    gang.room = 5
    gang.wait(3 * SPARE)
    assert not gang.outstanding


def test_it_needs_no_more_than_somebody_has_asked_for() -> None:
    gang = world({"worker": spare(3, 4, min_instances=1)}).run()
    gang.resize("others need it", worker=1)
    gang.commit(5)
    gang.obey_all()
    gang.start_all()
    gang.lose("worker:0", ExitReason.PREEMPTED)
    gang.obey_all()
    gang.run()
    assert workers(gang) == [0]


def test_fewer_while_some_are_vacant() -> None:
    gang = grown()
    gang.preempt("worker:1")
    gang.commit(9)
    gang.obey_all()
    gang.start_all()
    gang.resize("others need it", worker=2)
    gang.commit(10)
    gang.obey_all()
    assert workers(gang) == [0, 2]
    assert list(gang.states) == ["worker:0", "worker:1", "worker:2"]
    gang.start_all()
    gang.resize("they do not", worker=4)
    assert len(gang.outstanding) == 2
    comes_up(gang, 12)
    assert workers(gang) == [0, 1, 2, 3]
    succeeds(gang)


def test_one_that_is_vacant_and_dropped_meanwhile_is_not_waited_for() -> None:
    gang = grown({"worker": spare(min_instances=1)})
    gang.lose("worker:2", ExitReason.PREEMPTED)
    gang.lose("worker:0", ExitReason.PREEMPTED)
    gang.resize("others need it", worker=1)
    gang.obey_all()
    gang.tick()
    assert workers(gang) == [1]
    assert list(gang.states) == ["worker:0", "worker:1"]
    succeeds(gang)


# ---- the rest of its life ----------------------------------------------------------------------------------------


def test_after_a_suspension_it_begins_with_what_it_needs() -> None:
    gang = grown()
    gang.preempt("worker:0")
    gang.commit(9)
    gang.obey_all()
    gang.start_all()
    gang.suspend()
    gang.commit(10)
    gang.obey_all()
    assert gang.session.phase is JobState.SUSPENDED
    gang.complete_all()
    gang.master_dies()
    gang.wait(100)
    gang.resume()
    assert len(gang.outstanding) == 2
    gang.run()
    assert workers(gang) == [0, 1]
    assert gang.rendezvous[-1].resume == point(10, "store/step-10-3")
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    assert gang.status.resizing == {"worker": 4}


def test_the_next_master_suspends_what_its_former_was_about_to() -> None:
    gang = grown()
    gang.lose("worker:1", ExitReason.PREEMPTED)
    gang.suspend()
    nobody_is_back(gang)
    gang.tick()
    assert gang.session.phase is JobState.SUSPENDED
    assert (list(gang.states), vacant(gang)) == (["worker:0", "worker:1"], [])
    gang.resume()
    gang.run()
    assert workers(gang) == [0, 1]
    succeeds(gang)


def test_a_number_that_somebody_gives_a_suspended_job_counts() -> None:
    gang = grown()
    gang.suspend()
    gang.commit(10)
    gang.obey_all()
    gang.complete_all()
    gang.resize("with more", worker=3)
    gang.master_dies()
    gang.wait(100)
    gang.resume()
    assert len(gang.outstanding) == 3
    gang.run()
    assert workers(gang) == [0, 1, 2]


def test_a_type_that_has_not_begun_takes_nothing() -> None:
    gang = world({"prepare": 1, "worker": spare()}).run()
    gang.room = 5
    gang.tick()
    gang.wait(3 * SPARE)
    assert not gang.outstanding
    gang.end("prepare:0")
    assert len(gang.outstanding) == 2


def test_nor_does_a_gang_that_has_succeeded() -> None:
    export = task_type(1, role=Role.ONCE, after={"worker": Milestone.SUCCEEDED})
    gang = grown({"worker": spare(), "export": export})
    gang.preempt("worker:1")
    gang.commit(9)
    gang.obey_all()
    gang.start_all()
    for index in (0, 2, 3):
        gang.end(f"worker:{index}")
    gang.room = 5
    gang.run()
    gang.wait(3 * SPARE)
    assert not gang.outstanding
    gang.end("export:0")
    gang.complete_all()
    assert gang.verdict.status is FinalStatus.SUCCEEDED


def test_the_next_master_knows_who_is_vacant() -> None:
    gang = grown()
    gang.preempt("worker:1")
    gang.commit(9)
    gang.obey_all()
    gone(gang)
    gang.start_all()
    before = len(gang.rendezvous)
    gang.master_dies()
    gang.come_back()
    assert gang.session.phase is JobState.RUNNING
    assert (len(gang.rendezvous), vacant(gang)) == (before, ["worker:1"])
    assert gang.task("worker:1").state is TaskState.LOST
    assert not gang.outstanding
    gang.room = 1
    gang.tick()
    gang.wait(SPARE + 1)
    comes_up(gang, 12)
    assert workers(gang) == [0, 1, 2, 3]
    succeeds(gang)


def test_the_next_master_does_without_one_that_was_killed() -> None:
    gang = grown()
    gang.lose("worker:1", ExitReason.PREEMPTED)
    gang.master_dies()
    gang.come_back()
    gang.obey_all()
    gang.tick()
    assert workers(gang) == [0, 2, 3]
    assert not gang.outstanding
    succeeds(gang)


def test_the_next_master_gives_back_what_its_former_was_about_to() -> None:
    gang = grown()
    gang.preempt("worker:3")
    gang.master_dies()
    gang.come_back()
    assert gang.status.resizing == {"worker": 3}
    gang.commit(9)
    gang.obey_all()
    assert workers(gang) == [0, 1, 2]


def test_the_next_master_asks_no_longer_for_what_nobody_gives() -> None:
    gang = world().run()
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)
    gang.master_dies()
    gang.come_back()
    assert gang.status.resizing == {"worker": 4}
    gang.wait(REPLACEMENT + 60)
    assert not gang.outstanding
    assert gang.status.resizing == {}


def test_a_master_that_finds_nobody_begins_with_what_is_needed() -> None:
    gang = grown()
    for task in list(gang.session.tasks):
        gang.executors.pop(gang.container(task.name))
    gang.master_dies()
    gang.wait(70)
    gang.complete_all()
    assert len(gang.outstanding) == 2
    gang.run()
    assert workers(gang) == [0, 1]


# ---- in any order ------------------------------------------------------------------------------------------------


def up(gang: World) -> None:
    gang.obey_all()
    gang.grant_all()
    gang.register_all()
    gang.start_all()


def finds_room(gang: World) -> None:
    gang.room = 2
    gang.tick()
    gang.wait(SPARE + 1)


def no_room(gang: World) -> None:
    gang.room = 0


def commits(gang: World) -> None:
    for name, _ in gang.session.mirror_ranks():
        if gang.task(name).runs:
            gang.commit(len(gang.checkpoints) + 1, name)


def grows(gang: World) -> None:
    """Where nothing is in its way."""
    up(gang)
    finds_room(gang)
    up(gang)
    commits(gang)
    up(gang)


def master_is_replaced(gang: World) -> None:
    gang.master_dies()
    gang.come_back()


def nobody_is_back(gang: World) -> None:
    """All is gone while there is no master."""
    for container_id in sorted(gang.held):
        gang.completed.add(container_id)
        gang.executors.pop(container_id, None)
    gang.master_dies()


def grants_one(gang: World) -> None:
    if gang.outstanding:
        gang.grant()


def taken(number: int, *, announced: bool) -> Callable[[World], None]:
    """The cluster wants a container back, or takes it; whose, is as it comes."""

    def act(gang: World) -> None:
        holding = [task.name for task in gang.session.tasks if task.has_container]
        if holding and announced:
            gang.preempt(holding[number % len(holding)])
        elif holding:
            gang.lose(holding[number % len(holding)], ExitReason.PREEMPTED)

    return act


def asked_for(number: int) -> Callable[[World], None]:
    return lambda gang: gang.resize(worker=number)


def lost(number: int) -> Callable[[World], None]:
    def act(gang: World) -> None:
        holding = [task.name for task in gang.session.tasks if task.has_container]
        if holding:
            gang.lose(holding[number % len(holding)])

    return act


HAPPENINGS: dict[str, Callable[[World], None]] = {
    "up": up,
    "grows": grows,
    "room": finds_room,
    "no room": no_room,
    "commits": commits,
    "grants one": grants_one,
    "a minute": lambda gang: gang.wait(REPLACEMENT + 1),
    "gone": gone,
    "suspended": World.suspend,
    "resumed": World.resume,
    "another master": master_is_replaced,
    "another master, and nobody else": nobody_is_back,
    **{f"asked for {number}": asked_for(number) for number in (1, 2, 3, 4)},
    **{f"wants {number}": taken(number, announced=True) for number in range(4)},
    **{f"takes {number}": taken(number, announced=False) for number in range(4)},
    **{f"loses {number}": lost(number) for number in range(2)},
}


@pytest.mark.parametrize("least", [None, 1])
@settings(max_examples=40, deadline=None)
@given(is_grown=st.booleans(), happenings=st.lists(st.sampled_from(sorted(HAPPENINGS)), max_size=40))
@example(is_grown=False, happenings=["room", "suspended", "wants 0", "a minute"])  # what is not given is too many, too
def test_whatever_happens_nothing_leaks_and_it_succeeds_in_the_end(
    least: int | None, is_grown: bool, happenings: list[str]
) -> None:
    spec = job(
        {"worker": spare(min_instances=least)},
        policy=RestartPolicy(budget=1000, same_failure=1000, node_losses=0),
        replacement=REPLACEMENT,
        allocation=ALLOCATION,
        spare=SPARE,
    )
    gang = World(spec, ["worker"]).run()
    if is_grown:
        grows(gang)
    for happening in happenings:
        HAPPENINGS[happening](gang)
        sound(gang)
    gang.room = 0
    gang.resume()
    for _ in range(4):
        up(gang)
        commits(gang)
        gone(gang)
        gang.wait(ALLOCATION * 2)
        sound(gang)
    assert gang.session.phase is JobState.RUNNING
    assert all(task.runs or task.unrequested for task in gang.session.tasks)
    succeeds(gang)


def sound(gang: World) -> None:
    """What holds at any time."""
    session = gang.session
    there = [task for task in session.tasks if not task.unrequested]
    assert session.verdict is None
    assert 1 <= len(there) <= 4
    assert not there[-1].unrequested
    for task in session.tasks:
        if task.unrequested:
            assert (task.state, task.key, task.has_container, task.left_out) == (TaskState.LOST, None, False, True)
    assert len(gang.outstanding) == sum(1 for task in session.tasks if task.key is not None) <= 4
    if session.phase is not JobState.RECOVERING:
        ours = {task.container.id for task in there if task.container and task.has_container}
        assert gang.held <= ours | gang.leaving
    at_work = [task for task in there if not task.left_out]
    assert len(at_work) >= 1
