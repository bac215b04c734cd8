"""A checkpoint from which processes fail again and again is passed over, once in an application."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.runtime.am.session.world import World, job, point
from tony_provider.runtime.jobspec.model import RestartPolicy, RestartScope, TaskSpec

CRASH = "Traceback (most recent call last):\nRuntimeError: storage has wrong byte size"
BACKOFF = 41  # seconds: more than before the fourth restart
OTHER_CRASH = "Traceback (most recent call last):\nConnectionError: no feature store"


def resumed(*steps: int, **policy: Any) -> World:
    """A job that has resumed from the newest of these checkpoints."""
    world = World(job({"worker": 2}, policy=RestartPolicy(**policy)), ["worker"], answers=False)
    world.checkpoints += [point(step, f"store/step-{step}") for step in steps]
    world.choose(1)
    world.answers = True
    return world.run()


def crash(world: World, output: str = CRASH) -> None:
    """Rank 0 fails, and whatever is needed for the next start happens."""
    world.end("worker:0", exit_code=1, output_tail=output)
    begin_again(world)


def kill(world: World) -> None:
    world.end("worker:0", signal=9)
    begin_again(world)


def begin_again(world: World) -> None:
    world.obey_all()
    world.wait(BACKOFF)
    if world.session.verdict is None:
        world.run()


def failure(world: World) -> str:
    """The message with which the job fails."""
    verdict = world.session.verdict
    assert verdict
    assert verdict.failure
    return verdict.failure.message


def source(world: World) -> int | None:
    """The step from which the newest processes resumed."""
    resume = world.rendezvous[-1].resume
    return resume.step if resume else None


def test_after_two_equal_failures_the_checkpoint_before_is_used() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    assert source(world) == 30, "a single failure may have any reason"
    crash(world)
    assert source(world) == 20
    (warning,) = world.status.warnings
    assert "resumed from snapshot 20 (step 20), " in warning
    assert "failed 2 times in the same way" in warning
    assert "worker:0 on node" in warning


def test_only_once_in_an_application() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    crash(world)
    crash(world)
    assert "same failure 3 times" in failure(world)
    assert source(world) == 20


def test_only_once_also_if_more_equal_failures_are_permitted() -> None:
    world = resumed(10, 20, 30, same_failure=4, budget=9)
    sources = []
    while world.session.verdict is None:
        sources.append(source(world))
        crash(world)
    assert sources == [30, 30, 20, 20, 20]


def test_also_after_another_master_has_taken_over() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    crash(world)
    world.master_dies()
    world.come_back()
    crash(world)
    assert "same failure 3 times" in failure(world)
    assert source(world) == 20


def test_the_next_application_begins_at_the_checkpoint_before() -> None:
    first = resumed(10, 20, 30, budget=0)
    crash(first)
    assert first.session.verdict, "the job permits no restart"
    second = World(job({"worker": 2}, policy=RestartPolicy(budget=0)), ["worker"], answers=False)
    second.checkpoints, second.failed_resumes = first.checkpoints, first.failed_resumes
    second.choose(1)
    assert not second.status.warnings
    second.run()
    crash(second)
    third = World(job({"worker": 2}), ["worker"], answers=False)
    third.checkpoints, third.failed_resumes = second.checkpoints, second.failed_resumes
    third.choose(1)
    assert third.run().rendezvous[-1].resume == point(20, "store/step-20")
    assert "resumed from snapshot 20" in third.status.warnings[0]


def test_without_an_older_checkpoint_the_job_fails_with_the_programs_failure() -> None:
    world = resumed(30)
    crash(world)
    crash(world)
    assert "same failure 2 times" in failure(world)
    assert CRASH.splitlines()[-1] in failure(world)


def test_not_after_different_failures() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    crash(world, OTHER_CRASH)
    assert source(world) == 30
    assert not world.status.warnings


def test_not_once_a_step_was_reported() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    world.beat("worker:1", 31)
    crash(world)
    assert source(world) == 30


def test_failures_do_not_add_up_over_a_step_that_a_process_reported() -> None:
    """The checkpoint is sound. Something else prevents starts from time to time."""
    world = resumed(10, 20, 30, budget=9)
    for _ in range(3):
        crash(world)
        assert source(world) == 30
        world.beat("worker:1", 31)
        kill(world)
    assert not world.status.warnings


def test_not_once_something_was_saved() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    assert world.commit(40) is None
    crash(world)
    assert source(world) == 40
    assert len(world.failed_resumes.by_checkpoint["step-30"]) == 1


def test_after_progress_it_may_go_back_again() -> None:
    world = resumed(10, 20, 30)
    crash(world)
    crash(world)
    assert source(world) == 20
    for step in (40, 50):
        assert world.commit(step) is None
    crash(world, OTHER_CRASH)
    crash(world)
    assert source(world) == 50
    crash(world)
    assert source(world) == 40


def test_kills_do_not_count() -> None:
    world = resumed(10, 20, 30)
    kill(world)
    kill(world)
    assert source(world) == 30
    assert not world.failed_resumes.by_checkpoint


def test_evaluators_do_not_count() -> None:
    tasks: dict[str, int | TaskSpec] = {"worker": 1, "evaluator": TaskSpec(restart=RestartScope.TASK)}
    world = World(job(tasks, policy=RestartPolicy()), ["worker"], answers=False)
    world.checkpoints.append(point(30, "store/step-30"))
    world.choose(1)
    world.answers = True
    world.run()
    world.end("evaluator:0", exit_code=1, output_tail=CRASH)
    assert not world.failed_resumes.by_checkpoint


def alone(*steps: int, **more: Any) -> World:
    """A job whose tasks restart alone. It has resumed from the newest of these checkpoints."""
    tasks: dict[str, int | TaskSpec] = {"worker": TaskSpec(instances=2, restart=RestartScope.TASK)}
    world = World(job(tasks, policy=RestartPolicy(), **more), ["worker"], answers=False)
    world.checkpoints += [point(step, f"store/step-{step}") for step in steps]
    world.choose(1)
    world.answers = True
    return world.run()


def test_a_task_that_restarts_alone_goes_back_alone() -> None:
    world = alone(20, 30)
    crash(world)
    assert world.rendezvous[-1].keep_checkpoints, "its directory still holds the checkpoint"
    crash(world)
    assert (world.rendezvous[-1].starts, source(world)) == ({"worker:0": 3}, 20)
    crash(world)
    assert "same failure 3 times" in failure(world)


@pytest.mark.parametrize("before", [(), (10,)])
def test_a_task_that_restarts_alone_goes_back_from_what_it_has_restored(before: tuple[int, ...]) -> None:
    """The checkpoint is newer than the one that the job has resumed from."""
    world = alone(*before)
    for step in (20, 30):
        assert world.commit(step) is None
    world.lose("worker:0")
    begin_again(world)
    assert source(world) == 30
    crash(world)
    assert world.rendezvous[-1].keep_checkpoints
    crash(world)
    assert source(world) == 20
    assert "resumed from snapshot 20" in world.status.warnings[-1]
    crash(world)
    assert "same failure 3 times" in failure(world)


def test_without_an_older_checkpoint_a_task_that_restarts_alone_is_given_up() -> None:
    world = alone(30)
    crash(world)
    crash(world)
    assert "same failure 2 times" in failure(world)


def test_people_learn_if_the_program_has_not_resumed() -> None:
    world = resumed(10, 20, 30)
    world.checkpoints[-1] = attrs.evolve(world.checkpoints[-1], reported_step=31)
    kill(world)
    world.beat("worker:0", 1)
    world.beat("worker:0", 2)
    (warning,) = world.status.warnings
    assert "resumed from snapshot 30 (step 30), but worker:0 continues at step 1" in warning


def test_people_do_not_learn_of_programs_that_resume() -> None:
    world = resumed(10, 20, 30)
    world.checkpoints[-1] = attrs.evolve(world.checkpoints[-1], reported_step=31)
    kill(world)
    world.beat("worker:0", 31)
    assert not world.status.warnings
