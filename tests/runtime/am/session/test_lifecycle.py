"""States, and what can follow what."""

from __future__ import annotations

from enum import Enum

import pytest

from tests.runtime.am.session.test_liveness import workers as two_workers
from tests.runtime.am.session.test_restarts import all_roles
from tony_provider.runtime.am.session.restarts.container_failures import MOST_REPLACEMENTS
from tony_provider.runtime.am.session.state import lifecycle
from tony_provider.runtime.am.session.state.lifecycle import (
    ContainerState,
    ImpossibleTransitionError,
    Lifecycle,
    Transitions,
)
from tony_provider.runtime.protocol.status import JobState, TaskState


def test_a_state_changes_as_its_table_says() -> None:
    task = Lifecycle("worker:0", lifecycle.TASK, TaskState.REQUESTED)
    task.enter(TaskState.REQUESTED)
    task.enter(TaskState.ALLOCATED)
    with pytest.raises(ImpossibleTransitionError, match="worker:0: ALLOCATED cannot become RUNNING"):
        task.enter(TaskState.RUNNING)
    assert task.state is TaskState.ALLOCATED


def test_nothing_follows_an_end() -> None:
    for end in (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED):
        with pytest.raises(ImpossibleTransitionError):
            Lifecycle("the job", lifecycle.JOB, end).enter(JobState.RUNNING)


@pytest.mark.parametrize(
    ("transitions", "beginning"),
    [
        (lifecycle.JOB, JobState.WAITING),
        (lifecycle.TASK, TaskState.REQUESTED),
        (lifecycle.CONTAINER, ContainerState.NONE),
    ],
)
def test_every_state_is_reached(transitions: Transitions[Enum], beginning: Enum) -> None:
    reached, left = {beginning}, [beginning]
    while left:
        following = set(transitions.get(left.pop(), {})) - reached
        reached |= following
        left += following
    assert reached == set(type(beginning))


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
