"""States, and what can follow what."""

from __future__ import annotations

from enum import Enum

import pytest

from tests.runtime.am.session.test_liveness import workers as two_workers
from tests.runtime.am.session.test_restarts import all_roles
from tests.runtime.am.session.world import EPOCH, World, job, task_type
from tony_provider.runtime.am.session import state_transitions
from tony_provider.runtime.am.session.reports import MOST_REPLACEMENTS
from tony_provider.runtime.am.session.session_state import ProcessEnd
from tony_provider.runtime.am.session.state_transitions import (
    ContainerState,
    ImpossibleTransitionError,
    Occasion,
    StateMachine,
    Story,
    Transitions,
)
from tony_provider.runtime.jobspec.model import RestartPolicy, RestartScope, TaskSpec
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, TaskState


def test_a_state_changes_as_its_table_says() -> None:
    task = StateMachine("worker:0", state_transitions.TASK, TaskState.REQUESTED, Story(Occasion()))
    task.enter(TaskState.REQUESTED)
    task.enter(TaskState.STARTING)
    with pytest.raises(ImpossibleTransitionError, match="worker:0: STARTING cannot become RUNNING"):
        task.enter(TaskState.RUNNING)
    assert task.state is TaskState.STARTING


def test_nothing_follows_an_end() -> None:
    for end in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED):
        with pytest.raises(ImpossibleTransitionError):
            StateMachine("the job", state_transitions.JOB, end, Story(Occasion())).enter(JobState.RUNNING)


@pytest.mark.parametrize(
    ("transitions", "beginning"),
    [
        (state_transitions.JOB, JobState.WAITING),
        (state_transitions.TASK, TaskState.REQUESTED),
        (state_transitions.CONTAINER, ContainerState.NONE),
    ],
)
def test_every_state_is_reached(transitions: Transitions[Enum], beginning: Enum) -> None:
    reached, left = {beginning}, [beginning]
    while left:
        following = set(transitions.get(left.pop(), {})) - reached
        reached |= following
        left += following
    assert reached == set(type(beginning))


def test_the_story_of_a_task_has_each_transition_with_its_reason() -> None:
    world = World(job({"worker": 1}, policy=RestartPolicy()), ["worker"]).run()
    world.end("worker:0", exit_code=3)
    world.lose("worker:0")
    world.run()
    story = world.session.story("worker:0")
    assert story
    assert story.task == "worker:0"
    changes = [(each.subject.partition(" ")[0], each.before, each.after, each.event) for each in story.transitions]
    assert changes == [
        ("the", "NONE", "LAUNCHED", "Allocated"),
        ("worker:0", "REQUESTED", "STARTING", "Allocated"),
        ("worker:0", "STARTING", "REGISTERED", "ExecutorRegistered"),
        ("worker:0", "REGISTERED", "RUNNING", "ProcessStarted"),
        ("worker:0", "RUNNING", "FAILED", "ProcessEnd"),
        ("worker:0", "FAILED", "REGISTERED", "ProcessEnd"),
        ("the", "LAUNCHED", "ENDED", "Completed"),
        ("worker:0", "REGISTERED", "LOST", "Completed"),
        ("the", "ENDED", "NONE", "Completed"),
        ("worker:0", "LOST", "REQUESTED", "Completed"),
        ("the", "NONE", "LAUNCHED", "Allocated"),
        ("worker:0", "REQUESTED", "STARTING", "Allocated"),
        ("worker:0", "STARTING", "REGISTERED", "ExecutorRegistered"),
    ]
    failed = story.transitions[4]
    assert failed.why.startswith("its user process failed: worker:0 on node1:1 ended with exit code 3")
    assert failed.time_ms == int((EPOCH + world.now) * 1000)
    assert world.session.story("worker:1") is None


def test_of_a_long_story_the_newest_part_is_kept() -> None:
    story = Story(Occasion())
    machine = StateMachine("worker:0", state_transitions.TASK, TaskState.REQUESTED, story)
    for _ in range(state_transitions.MOST_TRANSITIONS):
        machine.enter(TaskState.STARTING)
        machine.enter(TaskState.REQUESTED)
    machine.enter(TaskState.FAILED)
    assert len(story.transitions) == state_transitions.MOST_TRANSITIONS
    assert story.transitions[-1].after == "FAILED"


# ---- what is seldom --------------------------------------------------------------------------------------------------


def test_a_container_may_be_lost_while_it_is_not_known_what_comes_of_its_tasks_failure() -> None:
    world = two_workers(stall=30).run()

    def state() -> TaskState:
        return world.states["worker:1"]

    for step in range(60):
        world.beat("worker:1", 1)
        world.beat("worker:0", step)
        world.disconnect("worker:0")  # perhaps it is the one that fails first
        world.tick()
        if state() is not TaskState.RUNNING:
            break
        world.register("worker:0", world.executor_of("worker:0"))
    assert state() is TaskState.FAILED
    world.lose("worker:1")
    assert state() is TaskState.REQUESTED
    assert world.attempt("worker:1") == 2


def test_a_side_car_that_never_starts_is_given_up() -> None:
    world = all_roles().run()
    for _ in range(MOST_REPLACEMENTS + 1):
        world.lose("sidecar:0")
        world.wait(60)
        world.grant_all()
        if world.states["sidecar:0"] is not TaskState.FAILED:
            world.register("sidecar:0")
            world.tick()
    assert world.states["sidecar:0"] is TaskState.FAILED
    assert len(world.session.state.warnings) == 1


def test_a_side_car_that_was_given_up_is_not_launched_with_the_next_containers_of_the_gang() -> None:
    tasks = {"worker": 2, "sidecar": 1}
    world = World(job(tasks, policy=RestartPolicy(budget=3), replacement=20, allocation=50), ["worker"]).run()
    while not world.task("sidecar:0").given_up:
        world.end("sidecar:0", exit_code=1)
        world.wait(100)
        world.run()
    world.lose("worker:1")
    world.obey_all()
    world.wait(85)
    assert world.session.phase is JobState.WAITING
    world.run()
    assert world.states == {
        "worker:0": TaskState.RUNNING,
        "worker:1": TaskState.RUNNING,
        "sidecar:0": TaskState.FAILED,
    }


def test_a_job_that_has_succeeded_does_not_wait_for_the_whole_gang_again() -> None:
    tasks: dict[str, int | TaskSpec] = {"worker": 1, "evaluator": task_type(1, restart=RestartScope.GANG)}
    spec = job(tasks, policy=RestartPolicy(budget=3), evaluator=1000, replacement=100)
    world = World(spec, ["worker"]).run()
    world.end("worker:0")
    world.lose("evaluator:0")
    world.complete_all()
    world.wait(200)
    assert world.session.phase is JobState.FINISHING
    world.wait(1000)
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_a_restart_that_was_decided_while_executors_were_waited_for_is_one() -> None:
    world = World(job({"worker": 3}, policy=RestartPolicy(budget=3), replacement=20), ["worker"]).run()
    world.commit(10)
    world.end("worker:1", exit_code=1)
    world.obey_all()
    world.master_dies()
    for name in ("worker:0", "worker:1"):
        world.register(name, world.executor_of(name))
    world.restore_fails("worker:0", damaged=True)
    world.lose_unheard("worker:2")
    for _ in range(4):
        world.wait(50)
        world.obey_all()
    assert world.session.phase is JobState.WAITING
    assert world.run().session.phase is JobState.RUNNING


def test_what_had_ended_while_no_master_was_there_may_be_the_end_of_the_job() -> None:
    tasks = {"ps": 1, "chief": 1, "worker": 1}
    world = World(job(tasks, policy=RestartPolicy(), grace=10), ["chief"]).run()
    world.end("ps:0")
    world.master_dies()
    chief = world.executor_of("chief:0")
    chief.running, chief.end = False, ProcessEnd(chief.start, exit_code=1)
    world.lose_unheard("worker:0")
    world.come_back()
    world.wait(80)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert (failure.kind, failure.task) == (FailureKind.USER, "ps:0")
