"""Checkpoints as far as they steer the job: who commits, where it goes on from, and what comes of damaged ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.am.session.world import World, job, point
from tony_provider.runtime.am.session.actions import AskCheckpoint
from tony_provider.runtime.am.session.checkpoints import MOST_DAMAGED
from tony_provider.runtime.am.session.session_events import CheckpointOrder, ResumeChosen, ResumeNotChosen
from tony_provider.runtime.jobspec.model import MirrorScope, RestartPolicy
from tony_provider.runtime.protocol.status import FailureKind, JobState

PS_JOB = {"ps": 1, "worker": 2, "chief": 1, "evaluator": 1}


def workers(*, mirror: MirrorScope = MirrorScope.LEADER, answers: bool = True, **how: Any) -> World:
    spec = job({"worker": 3}, policy=RestartPolicy(**how), mirror=mirror, grace=10, checkpoint=20)
    return World(spec, ["worker"], answers=answers)


# ---- who makes them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mirror", "ranks"),
    [
        (MirrorScope.LEADER, [("chief:0", 0)]),
        (MirrorScope.ALL, [("chief:0", 0), ("worker:0", 1), ("worker:1", 2)]),
        (MirrorScope.OFF, []),
    ],
)
def test_whose_checkpoints_are_copied(mirror: MirrorScope, ranks: list[tuple[str, int]]) -> None:
    world = World(job(PS_JOB, mirror=mirror), ["chief"]).run()
    assert list(world.session.mirror_ranks()) == ranks


def test_nobodys_are_before_the_first_rendezvous() -> None:
    assert not workers().session.mirror_ranks()


@pytest.mark.parametrize("mirror", [MirrorScope.LEADER, MirrorScope.OFF])
def test_somebody_wants_a_checkpoint_now(mirror: MirrorScope) -> None:
    world = World(job(PS_JOB, mirror=mirror), ["chief"]).run()
    world.handle(CheckpointOrder("ann wants it"))
    assert world.asked == [AskCheckpoint(("chief:0",), "ann wants it")]


def test_nobody_can_make_one_while_nobody_runs() -> None:
    world = workers()
    world.handle(CheckpointOrder("ann wants it"))
    assert not world.asked
    assert world.noted("checkpoint_requested") == ["ann wants it; no running task can save a checkpoint"]


def test_only_the_newest_start_of_the_current_attempt_commits() -> None:
    world = workers(mirror=MirrorScope.ALL).run()
    session = world.session
    assert session.commit_refusal("worker:1", 1, 1, 1) is None
    assert session.commit_refusal("worker:1", 2, 1, 1)
    assert session.commit_refusal("worker:1", 1, 1, 2)
    assert session.commit_refusal("worker:1", 1, 2, 1)
    assert session.commit_refusal("worker:9", 1, 1, 1)
    world.end("worker:1")
    assert session.commit_refusal("worker:1", 1, 1, 1) is None  # its last copy


def test_the_last_copies_of_a_job_that_is_killed_count() -> None:
    world = workers().run()
    world.stop()
    assert world.commit(9) is None
    world.end("worker:0", signal=15, stopped=True, settles=False)
    assert world.commit(10) is None


# ---- where to go on from -------------------------------------------------------------------------------------------


def test_the_resume_point_is_chosen_while_containers_are_waited_for() -> None:
    world = workers(answers=False)
    assert world.choices == [1]
    world.grant_all()
    world.register_all()
    assert not world.rendezvous
    world.choose(1)
    assert world.rendezvous[0].resume is None


def test_a_job_begins_where_its_chain_is() -> None:
    world = workers(answers=False)
    world.checkpoints.append(point(70, "store/step-70"))
    world.choose(1)
    world.run()
    assert world.rendezvous[0].resume == point(70, "store/step-70")
    world.commit(70)
    world.end("worker:0", exit_code=1)
    world.obey_all()
    assert len(world.session.groups.gang.budget.times) == 1


def test_a_store_that_does_not_answer_fails_the_job() -> None:
    world = workers(answers=False)
    world.handle(ResumeNotChosen(1, "no NameNode answers"))
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.CHECKPOINT
    assert "no NameNode answers" in failure.message


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    world = workers().run()
    world.handle(ResumeNotChosen(1, "late"))
    world.handle(ResumeChosen(1, point(1, "late")))
    assert world.session.phase is JobState.RUNNING
    assert len(world.rendezvous) == 1


def test_an_answer_that_came_for_a_task_alone_is_not_used_for_the_next_generation() -> None:
    world = World(job({"worker": 1, "evaluator": 1}, policy=RestartPolicy()), ["worker"], answers=False)
    world.choose(1)
    world.run()
    world.lose("evaluator:0")
    world.grant_all()
    world.register_all()
    assert world.choices == [1, 1]
    world.commit(5)
    world.end("worker:0", exit_code=1)
    assert world.choices == [1, 1, 2]
    world.choose(1)
    assert len(world.rendezvous) == 1
    world.choose(2)
    assert world.rendezvous[-1].starts == {"worker:0": 2}
    assert world.choices == [1, 1, 2, 2]
    world.choose(2)
    assert world.rendezvous[-1].starts == {"evaluator:0": 2}
    assert world.rendezvous[-1].resume == world.rendezvous[-2].resume == point(5, "store/step-5-1")


# ---- restoring -----------------------------------------------------------------------------------------------------


def with_checkpoints(steps: int) -> World:
    """Starts from the newest of these; nobody has restored it yet."""
    world = workers(answers=False, budget=1)
    world.checkpoints += [point(step, f"store/step-{step}") for step in range(1, steps + 1)]
    world.choose(1)
    world.answers = True
    world.grant_all()
    world.register_all()
    return world


def test_a_damaged_checkpoint_is_set_aside_and_the_next_is_taken_by_all() -> None:
    world = with_checkpoints(3)
    world.start("worker:0")
    world.restore_fails("worker:1", damaged=True)
    assert [(aside.resume, aside.reason) for aside in world.set_aside] == [(point(3, "store/step-3"), "bad checksum")]
    world.restore_fails("worker:2", damaged=True)  # it found the same
    assert len(world.set_aside) == 1
    world.obey_all()
    sent = world.rendezvous[-1]
    assert sent.starts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}
    assert sent.resume == point(2, "store/step-2")
    assert not world.session.groups.gang.budget.times


def test_no_checkpoint_is_left() -> None:
    world = with_checkpoints(1)
    world.restore_fails("worker:1", damaged=True)
    world.obey_all()
    assert world.rendezvous[-1].resume is None
    world.start_all()
    assert world.session.phase is JobState.RUNNING


def test_not_every_checkpoint_is_tried() -> None:
    world = with_checkpoints(50)
    for _ in range(MOST_DAMAGED + 1):
        world.restore_fails("worker:1", damaged=True)
        world.obey_all()
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.CHECKPOINT
    assert f"step {50 - MOST_DAMAGED}" in failure.message


def test_a_task_that_cannot_restore_what_is_sound_gets_another_container() -> None:
    world = with_checkpoints(3)
    world.restore_fails("worker:1", damaged=False)
    assert not world.set_aside
    assert world.shut_down() == ["worker:1"]
    world.obey_all()
    world.run()
    assert world.attempt("worker:1") == 2
    assert world.rendezvous[-1].resume == point(3, "store/step-3")
    assert len(world.session.groups.gang.budget.times) == 1
    world.restore_fails("worker:1", damaged=False)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.CHECKPOINT
    assert "worker:1" in failure.message


def test_an_independent_task_chooses_again_alone() -> None:
    world = World(job({"worker": 2}, policy=RestartPolicy()), ["worker"], alone=True).run()
    world.commit(4)
    world.commit(5)
    world.lose("worker:1")
    world.grant_all()
    world.register_all()
    world.restore_fails("worker:1", damaged=True)
    sent = world.rendezvous[-1]
    assert (sent.starts, sent.resume) == ({"worker:1": 3}, point(4, "store/step-4-1"))
    assert not sent.keep_checkpoints
    assert not world.stops


@pytest.mark.parametrize("left", [10, None])
def test_a_checkpoint_that_the_store_has_no_more_is_not_named_either(left: int | None) -> None:
    """Found to be broken while the next resume point was looked for."""
    world = workers().run()
    world.commit(10)
    world.commit(20)
    world.checkpoints = [each for each in world.checkpoints if each.step == left]
    for master_dies in (False, True):
        if master_dies:
            world.master_dies()
            world.come_back()
        else:
            world.end("worker:1", exit_code=1)
            world.restarted()
        named = world.session.state.checkpoint
        assert (named.step if named else None) == left


def test_the_checkpoint_of_a_chain_that_is_continued_is_not_this_jobs() -> None:
    world = workers().run()
    world.commit(20)
    world.checkpoints = [point(10, "another/step-10-1")]
    world.end("worker:1", exit_code=1)
    world.restarted()
    assert world.session.state.checkpoint is None


def test_a_node_that_cannot_prepare_for_user_processes_is_avoided() -> None:
    world = workers(budget=2, node_losses=2).run()
    node = world.task("worker:1").node
    for _ in range(2):
        world.restore_fails("worker:1", damaged=False)  # there is no checkpoint: it was something else
        world.obey_all()
        world.grant(node=node)
        world.run()
    assert world.avoided == (node,)


def test_a_container_that_could_not_be_prepared_is_no_failure_of_a_checkpoint() -> None:
    world = workers(budget=0).run()
    world.restore_fails("worker:1", damaged=False)
    world.complete_all()
    failure = world.verdict.failure
    assert failure
    assert failure.kind is FailureKind.LAUNCH
    assert "worker:1" in failure.message
    assert "could not prepare for its user process" in failure.message
