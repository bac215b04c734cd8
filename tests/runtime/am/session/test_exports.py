"""Exports of the model on its way: who is asked, when again, and what an answer is."""

from __future__ import annotations

import attrs
import pytest

from tests.runtime.am.session.test_job_status import status
from tests.runtime.am.session.world import EPOCH, World, job
from tony_provider.runtime.am.session.actions import AskExport
from tony_provider.runtime.am.session.session_events import ExportRequested, ModelExport
from tony_provider.runtime.jobspec.model import ExportSpec, RestartPolicy, Role, TaskSpec
from tony_provider.runtime.protocol.status import ExportedModel


def world(*, every: int | None = None) -> World:
    spec = job({"worker": 2, "chief": 1}, policy=RestartPolicy())
    return World(attrs.evolve(spec, export=ExportSpec(every=every)), ["chief"])


def ask(world: World, asked_ms: int) -> None:
    world.handle(ExportRequested("ann wants it", asked_ms))


def answer(world: World, step: int, asked_ms: int = 0, *, name: str = "chief:0", problem: str = "") -> None:
    export = ExportedModel(step, "" if problem else f"store/exports/step-{step}", 7, asked_ms)
    world.report(name, ModelExport(export, problem))


def test_the_leading_task_is_asked_and_answers() -> None:
    running = world().run()
    ask(running, 1000)
    assert running.asked_to_export == [AskExport("chief:0", 1000, "ann wants it")]
    request = status(running).export_request
    assert request is not None
    assert (request.asked_ms, request.since_ms, request.reason) == (1000, 1000, "ann wants it")
    answer(running, 40, 1000)
    told = status(running)
    assert told.export == ExportedModel(40, "store/exports/step-40", 7, 1000)
    assert told.export_request is None
    answer(running, 40, 1000)  # by an executor that has registered again
    assert len(running.noted("exported")) == 1


def test_what_was_there_before_is_no_answer() -> None:
    running = world().run()
    answer(running, 10)
    ask(running, 1000)
    ask(running, 2000)
    answer(running, 20, 1000)
    request = status(running).export_request
    assert request is not None
    assert (request.asked_ms, request.since_ms) == (2000, 1000)
    answer(running, 20, 2000)  # the program has exported the same step again
    assert status(running).export_request is None


def test_nobodys_but_the_leaders_counts() -> None:
    running = world().run()
    answer(running, 10, name="worker:0")
    answer(running, 10, name="worker:0", problem="a link")
    assert (status(running).export, status(running).warnings) == (None, [])


def test_who_does_not_run_is_asked_once_it_does() -> None:
    starting = world()
    ask(starting, 1000)
    assert not starting.asked_to_export
    assert starting.noted("export_requested") == ["ann wants it; chief:0 receives the request once it runs"]
    starting.run()
    assert starting.asked_to_export == [AskExport("chief:0", 1000, "ann wants it")]


def test_a_program_that_starts_again_is_asked_again() -> None:
    running = world().run()
    ask(running, 1000)
    running.end("worker:1", exit_code=1)
    running.restarted()
    assert running.asked_to_export == [AskExport("chief:0", 1000, "ann wants it")] * 2
    answer(running, 40, 1000)
    running.end("worker:1", exit_code=2)
    running.restarted()
    assert len(running.asked_to_export) == 2


@pytest.mark.parametrize("answered", [False, True])
def test_the_next_master_knows(answered: bool) -> None:
    running = world().run()
    answer(running, 10)
    ask(running, 1000)
    if answered:
        answer(running, 20, 1000)
    before = status(running)
    running.master_dies()
    running.come_back()
    after = status(running)
    assert (after.export, after.export_request) == (before.export, before.export_request)
    assert len(running.asked_to_export) == (1 if answered else 2)


def test_every_nth_checkpoint() -> None:
    running = world(every=3).run()
    for step in range(1, 8):
        running.commit(step)
    asked = [each.asked_ms for each in running.asked_to_export]
    assert asked == [round((EPOCH + running.now) * 1000)] * 2
    labels = [f"snapshot {step} (step {step})" for step in (3, 6)]
    assert running.noted("export_requested") == [f"export.every: {label} is on the store" for label in labels]


def test_saves_are_counted_over_restarts_and_masters() -> None:
    running = world(every=3).run()
    running.commit(2)
    running.end("worker:1", exit_code=1)
    running.restarted()
    running.master_dies()
    running.come_back()
    running.commit(4)  # the third was refused
    assert len(running.asked_to_export) == 1


def test_nobody_is_asked_for_the_last_checkpoint() -> None:
    running = world(every=1).run()
    running.end("chief:0", settles=False)
    assert running.commit(1) is None
    assert not running.asked_to_export
    assert status(running).export_request is None


def test_a_request_that_leads_to_nothing_is_told_after_a_while() -> None:
    running = world().run()
    ask(running, round((EPOCH + running.now) * 1000))
    running.wait(200)
    assert status(running).warnings == []
    ask(running, round((EPOCH + running.now) * 1000))  # somebody else, or the next checkpoint
    running.wait(150)
    [warning] = status(running).warnings
    assert "but none arrived: the program must check for requests" in warning
    running.wait(50)
    assert status(running).warnings == [warning]  # in the same words, since it is told once
    answer(running, 5, status(running).export_request.asked_ms)  # type: ignore[union-attr]
    assert status(running).warnings == []


def test_an_export_that_is_not_kept_is_told_until_the_next_one_is() -> None:
    running = world().run()
    ask(running, 1000)
    for _ in range(2):
        answer(running, 5, 1000, problem="step-5 is empty")
    told = status(running)
    assert told.warnings == ["the export of step 5 could not be stored: step-5 is empty"]
    assert told.export_request is not None
    assert told.export_request.problem == told.warnings[0]
    assert len(running.noted("export_failed")) == 1
    answer(running, 6, 1000)
    assert status(running).warnings == []


def test_a_job_without_a_leader_says_so() -> None:
    alone = World(job({"evaluator": TaskSpec(command="true", role=Role.EVALUATOR)}), ["evaluator"])
    ask(alone, 1000)
    assert alone.noted("export_requested") == ["ann wants it; the job has no task that can export a model"]
    assert status(alone).export_request is None
