"""What counts as progress between two failures; only this returns used restarts to the budget."""

from __future__ import annotations

import pytest

from tests.runtime.am.session.test_same_failure import ended, fail, workers
from tests.runtime.am.session.world import World
from tony_provider.runtime.am.session.restart_policy import LONGEST_START, CommittedSave, GroupProgress
from tony_provider.runtime.am.session.session_events import CheckpointCommitted
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.jobspec.model import MirrorScope


def commit(world: World, save: int, committed: CommittedSave) -> None:
    point = ResumePoint(committed.content_step, f"store/save-{save}", save)
    world.handle(CheckpointCommitted(point, committed))


def saved(step: int | None = None, *, is_new: bool = True, seconds: float = LONGEST_START) -> CommittedSave:
    return CommittedSave(["worker:0"], step, is_new, seconds)


def test_arguments_that_each_start_saves_are_no_progress() -> None:
    """As of a program that pickles its arguments, and then fails."""
    world = workers(same_failure=5, budget=2)
    for save in (1, 2):
        commit(world, save, saved(seconds=3.0))
        fail(world, run=save)
    commit(world, 3, saved(seconds=3.0))
    fail(world, run=3)
    assert "given up after 2 restarts without progress" in ended(world)


@pytest.mark.parametrize(
    ("save", "is_progress"),
    [
        (saved(), True),
        (saved(is_new=False), False),
        (saved(seconds=LONGEST_START - 1), False),
        (saved(11, is_new=False, seconds=0.0), True),
        (saved(10), False),
        (saved(9), False),
    ],
)
def test_a_save_is_progress_by_its_content(save: CommittedSave, is_progress: bool) -> None:
    progress = GroupProgress(reported=50, saved=10)
    assert progress.has_saved(save) is is_progress


def test_steps_count_once() -> None:
    progress = GroupProgress()
    assert [progress.has_reported(step) for step in (3, 3, 2, 4)] == [True, False, False, True]


def test_what_one_independent_task_saves_is_no_progress_of_another() -> None:
    world = workers(alone=True, mirror=MirrorScope.AUTO, same_failure=9, budget=2)
    for save in (1, 2):
        fail(world, "worker:1", run=save)
        commit(world, save, saved(10 * save))
    fail(world, "worker:1", run=3)
    assert "given up after 2 restarts without progress" in ended(world)


def test_the_next_master_knows_the_highest_step() -> None:
    world = workers(budget=2, same_failure=9)
    world.beat("worker:0", 8)
    fail(world, run=1)
    world.master_dies()
    world.come_back()
    world.beat("worker:0", 8)
    fail(world, run=2)
    world.beat("worker:0", 7)
    fail(world, run=3)
    assert "given up after 2 restarts without progress" in ended(world)
