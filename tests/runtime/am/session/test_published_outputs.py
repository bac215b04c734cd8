"""Which parts of outputs count, and what a job waits for before it has succeeded."""

from __future__ import annotations

import attrs
import pytest

from tests.runtime.am.session.test_job_status import status
from tests.runtime.am.session.world import World, job
from tony_provider.runtime.jobspec.model import OutputSpec, RestartPolicy, Tolerance
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState


def world_of(*, alone: bool = False, tolerated: str = "0") -> World:
    spec = attrs.evolve(
        job({"worker": 2}, policy=RestartPolicy(budget=3 if not alone else 0)),
        outputs={"out": OutputSpec("/out")},
        tolerated_failures=Tolerance(tolerated),
    )
    return World(spec, ["worker"], alone=alone).run()


def succeed(world: World, name: str) -> OutputPart:
    """It ends well, and leaves this."""
    world.end(name)
    (left,) = world.ends[name].outputs
    return left


@pytest.fixture
def world() -> World:
    return world_of()


def test_the_job_has_succeeded_once_its_outputs_are_published(world: World) -> None:
    left = [succeed(world, name) for name in ("worker:0", "worker:1")]
    assert world.publications == []  # executors may still end
    world.complete_all()
    assert [list(each) for each in world.publications] == [left]
    world.tick(1000)
    assert world.session.phase is JobState.FINISHING
    assert status(world).message == "the tasks have succeeded; publishing out"
    assert len(world.publications) == 1
    world.published()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_what_cannot_be_published_fails_the_job_also_for_the_next_master(world: World) -> None:
    for name in ("worker:0", "worker:1"):
        succeed(world, name)
    world.complete_all()
    world.published("outputs.out: no room")
    assert world.verdict.status is FinalStatus.FAILED
    assert world.verdict.failure is not None
    assert world.verdict.failure.kind is FailureKind.OUTPUT
    assert world.verdict.failure.message.endswith("cannot be published: outputs.out: no room")
    world.master_dies()
    world.tick()
    assert world.finished[1] == world.finished[0]
    assert len(world.publications) == 1


def test_what_a_start_before_the_last_has_left_does_not_count(world: World) -> None:
    succeed(world, "worker:0")
    world.end("worker:1", exit_code=1)
    world.restarted()
    left = [succeed(world, name) for name in ("worker:0", "worker:1")]
    world.complete_all()
    assert [list(each) for each in world.publications] == [left]
    assert [each.part for each in left] == ["worker-0.1.2", "worker-1.1.2"]


def test_nothing_of_a_task_that_was_given_up(world: World) -> None:
    world = world_of(alone=True, tolerated="1")
    world.end("worker:0", exit_code=1)
    left = succeed(world, "worker:1")
    world.complete_all()
    assert world.publications == [(left,)]


def test_a_job_that_fails_publishes_nothing(world: World) -> None:
    succeed(world, "worker:0")
    world.stop()
    world.complete_all()
    assert world.verdict.status is FinalStatus.KILLED
    assert world.publications == []


def test_the_next_master_publishes_the_same_though_nobody_is_left_to_ask(world: World) -> None:
    left = tuple(succeed(world, name) for name in ("worker:0", "worker:1"))
    world.complete_all()
    world.master_dies()
    world.tick()
    assert world.publications == [left, left]
    world.published()
    assert world.verdict.status is FinalStatus.SUCCEEDED


def test_the_next_master_knows_what_tasks_have_left_that_were_over() -> None:
    world = world_of(alone=True)
    left = [succeed(world, "worker:0")]
    world.complete(world.container("worker:0"))
    assert world.task("worker:0").released
    world.master_dies()
    world.come_back()
    left.append(succeed(world, "worker:1"))
    world.complete_all()
    assert [list(each) for each in world.publications] == [left]
