"""What a training leaves, and the store does not take."""

from __future__ import annotations

import pytest

from tests.runtime.am.session.test_job_status import status
from tests.runtime.am.session.world import World, job
from tony_provider.runtime.am.session.session_events import CheckpointBlocked, FromTask
from tony_provider.runtime.am.session.session_state import Heartbeat, Settlement
from tony_provider.runtime.jobspec.model import RestartPolicy
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus

QUOTA = "its results could not be uploaded within 1800 s (timeouts.upload): quota"


@pytest.fixture
def world() -> World:
    return World(job({"worker": 2}, policy=RestartPolicy(budget=3)), ["worker"]).run()


def test_what_has_ended_well_is_not_trained_again(world: World) -> None:
    world.end("worker:0", not_kept=QUOTA)
    verdict = world.session.verdict
    assert verdict is not None
    assert verdict.failure is not None
    assert (verdict.status, verdict.failure.kind) == (FinalStatus.FAILED, FailureKind.UPLOAD)
    assert not verdict.failure.permanent, "another application goes on from the last checkpoint, and uploads it"
    assert verdict.failure.message.startswith(
        "worker:0 on node1:1 has succeeded, but its results could not be uploaded"
    )
    assert len(world.rendezvous) == 1, "it was started again"


def test_what_was_stopped_while_it_waited_for_the_store_starts_again_with_the_others(world: World) -> None:
    world.end("worker:1", exit_code=1)
    world.end("worker:0", stopped=True, not_kept=QUOTA)
    world.restarted()
    assert world.session.verdict is None
    assert world.session.generation == 2


def test_a_last_checkpoint_that_is_lost_is_told_in_the_result(world: World) -> None:
    world.end("worker:0", settles=False)
    world.settle("worker:0", "quota")
    world.end("worker:1")
    assert status(world).warnings == ["the newest checkpoint of worker:0 is not on the store: quota"]


def test_files_that_were_not_stored_are_counted(world: World) -> None:
    world.end("worker:0", settles=False)
    said = ("snapshots leave out a link",)
    settlement = Settlement(1, "quota", notices=said, unstored=3)
    world.handle(FromTask("worker:0", 1, settlement))
    world.end("worker:1")
    told = status(world)
    assert told.warnings == [
        "the newest checkpoint of worker:0 (3 files) is not on the store: quota",
        "worker:0: snapshots leave out a link",
    ]
    assert [task.unstored for task in told.tasks] == [3, None]


def test_tasks_with_the_same_notice_share_a_warning(world: World) -> None:
    for name in ("worker:0", "worker:1"):
        beat = Heartbeat({"rss_bytes": 1000}, notices=("its files are not stored", name))
        world.handle(FromTask(name, 1, beat))
    assert status(world).warnings == [
        "worker:0, worker:1: its files are not stored",
        "worker:0: worker:0",
        "worker:1: worker:1",
    ]


def test_the_notices_of_a_start_end_with_the_next_one(world: World) -> None:
    world.handle(FromTask("worker:0", 1, Heartbeat({"rss_bytes": 1000}, notices=("one",))))
    world.handle(FromTask("worker:0", 1, Heartbeat({"rss_bytes": 1000})))
    assert status(world).warnings == []


def test_the_reason_for_which_no_checkpoint_can_be_stored_is_a_warning(world: World) -> None:
    for problem, warnings in (("no checkpoint can be stored: why", ["no checkpoint can be stored: why"]), ("", [])):
        world.handle(CheckpointBlocked(problem))
        assert status(world).warnings == warnings


def test_a_checkpoint_that_the_next_start_makes_up_for_is_not_lost(world: World) -> None:
    world.end("worker:0", exit_code=1, settles=False)
    world.settle("worker:0", "quota")
    assert status(world).warnings == ["the newest checkpoint of worker:0 is not on the store: quota"]
    world.restarted()
    assert status(world).warnings == []


def test_trouble_with_the_store_is_told_while_it_lasts(world: World) -> None:
    def beat(trouble: str) -> None:
        world.handle(FromTask("worker:0", 1, Heartbeat({"rss_bytes": 1000}, upload_problem=trouble)))

    beat("its newest checkpoint does not get to the store since 14:03:12 UTC: quota")
    assert status(world).warnings == [
        "worker:0: its newest checkpoint does not get to the store since 14:03:12 UTC: quota"
    ]
    beat("")
    assert status(world).warnings == []
