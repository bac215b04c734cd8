"""TonyJobTrigger on the embedded local cluster: what it yields, and what it lets live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import attrs
import pytest
from airflow.triggers.base import TriggerEvent

from tests.operators.jobs import DEADLINE, Marker, ended, job
from tests.operators.telemetry.fake_mlflow import Data, Info, Run, Server
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks import mlflow_server
from tony_provider.hooks.mlflow_server import OpenMlflowRun
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.triggers import tony
from tony_provider.triggers.tony import VERSION, DeferredByNewerRelease, DeferredJob, TonyJobTrigger, WatchEvent
from tony_provider.watching import termination
from tony_provider.watching.job_watch import WatchEnd
from tony_provider.watching.observation import TrainTask, TrainTaskState
from tony_provider.watching.task_output import OutputPosition, OutputSelection
from tony_provider.watching.termination import killed_for


def submit(hook: TonyHook, command: str, run_id: str = "today", **more: Any) -> tuple[Identity, str]:
    identity = hook.identity(dag_id="trigger_test", run_id=run_id, task_id="train")
    return identity, hook.submit(SubmissionRequest(parse_job(job(command, **more)), identity)).application_id


def trigger_for(
    identity: Identity,
    application_id: str,
    *,
    kill: bool = True,
    tony_conn_id: str = "tony_default",
    mlflow: OpenMlflowRun | None = None,
    **changes: Any,
) -> TonyJobTrigger:
    watched = DeferredJob(tony_conn_id, None, identity.slug, identity.digest, application_id, kill, mlflow=mlflow)
    arguments: dict[str, Any] = {"poll_interval": 0.2, "end": None, "queue": None, "whose": "try 1 (0198)"}
    return TonyJobTrigger(job=to_plain(watched), **arguments | changes)


async def first_event(trigger: TonyJobTrigger) -> dict[str, Any]:
    async def get() -> TriggerEvent:
        return await anext(trigger.run())

    return (await asyncio.wait_for(get(), DEADLINE)).payload  # type: ignore[no-any-return]


async def test_the_task_is_not_woken_up_before_the_scheduler_has_heard_of_its_deferral(local: TonyHook) -> None:
    """A quick job has ended by then: the event waits for its moment, also where that was in the past."""
    identity, application_id = submit(local, "true")
    await first_event(trigger_for(identity, application_id))
    began = time.time()
    await first_event(trigger_for(identity, application_id, earliest=began + 3))
    assert time.time() >= began + 3
    await first_event(trigger_for(identity, application_id, earliest=began - 3600))


def is_alive(hook: TonyHook, application_id: str) -> bool:
    application = hook.application(application_id)
    return application is not None and not application.is_final


async def test_yields_one_event_when_the_job_has_ended(local: TonyHook) -> None:
    trigger = trigger_for(*submit(local, "exit 3", restart={"budget": 0}))
    event = await first_event(trigger)
    assert from_plain(event, WatchEvent) == WatchEvent(trigger.job, WatchEnd.FINISHED, event["last_message"])
    assert json.loads(json.dumps(event)) == event


async def test_another_triggerer_can_go_on_with_it(local: TonyHook, tmp_path: Path) -> None:
    first = trigger_for(*submit(local, f"while ! test -e {tmp_path}/go; do sleep 0.1; done"))
    await cancelled(first)
    path, arguments = first.serialize()
    assert path == f"{TonyJobTrigger.__module__}.{TonyJobTrigger.__qualname__}"
    second = TonyJobTrigger(**json.loads(json.dumps(arguments)))
    (tmp_path / "go").touch()
    assert (await first_event(second))["reason"] == WatchEnd.FINISHED


async def test_a_task_that_a_later_release_deferred_is_not_misread() -> None:
    """And not in the constructor, whose errors end the whole triggerer."""
    trigger = trigger_for(Identity("x", "0"), "application_1_0001", version=VERSION + 1)
    TonyJobTrigger(**{**trigger.serialize()[1], "job": {"known_by": "another name"}})
    with pytest.raises(DeferredByNewerRelease, match="newer release of tony-provider"):
        await anext(trigger.run())


def test_an_earlier_release_has_said_nothing_of_output() -> None:
    """And passes over what this one says of it."""
    job = DeferredJob(
        "tony_default", None, "x", "0", "application_1_0001", kill=True, output=OutputSelection(["worker:0"])
    )
    plain = to_plain(job)
    assert from_plain(plain, DeferredJob) == job
    without = {key: value for key, value in plain.items() if key != "output"}
    assert from_plain(without, DeferredJob) == attrs.evolve(job, output=None)
    event = to_plain(WatchEvent(job, WatchEnd.FINISHED, told={"worker:0": OutputPosition(1, 5)}))
    assert from_plain(event, WatchEvent).told == {"worker:0": OutputPosition(1, 5)}
    del event["told"]
    assert from_plain(event, WatchEvent).told == {}


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ("deferred", False),
        ("failed", True),
        pytest.param("queued", True, marks=pytest.mark.long),
        pytest.param("", True, marks=pytest.mark.long),
    ],
)
async def test_on_kill_ends_nothing_while_the_patched_task_is_deferred(
    local: TonyHook, marker: Marker, monkeypatch: pytest.MonkeyPatch, state: str, ends: bool
) -> None:
    """A triggerer whose triggers were handed to another one is told of it as of a user's action."""
    asked = []

    async def ask(task: TrainTask, seconds: float) -> TrainTaskState:
        asked.append(task)
        return TrainTaskState(state=state)

    monkeypatch.setattr(TrainTask, "ask", ask)
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    trigger = trigger_for(identity, application_id)
    trigger.task_instance = cast(Any, SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=3))
    await trigger.on_kill()
    assert asked == [TrainTask("d", "r", "t", 3)]
    assert is_alive(local, application_id) is not ends
    local.kill(application_id, "enough")


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (TrainTaskState(is_over=True, state="failed"), "KILLED"),
        (TrainTaskState(is_over=True, state="success"), "KILLED"),
        (TrainTaskState(), "KILLED"),  # its run was deleted
        (TrainTaskState(is_over=False, state="queued"), "RUNNING"),  # cleared: its next try goes on with the run
    ],
)
async def test_mlflow_run_of_a_patched_job_is_closed_when_a_user_ends_the_task(
    mlflow: Server, patched_end: list[str], monkeypatch: pytest.MonkeyPatch, states: TrainTaskState, status: str
) -> None:
    run = Run(Info("run0", "1", "train"))
    mlflow.runs.append(run)
    await end_as(states, run.info.run_id, monkeypatch)
    assert patched_end == [NAME]
    assert run.info.status == status
    assert run.data.tags.get("tony.verdict") == (status if status == "KILLED" else None)


async def test_mlflow_that_is_away_keeps_no_patched_job_alive(
    mlflow: Server, patched_end: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow.is_away = True
    await end_as(TrainTaskState(is_over=True, state="failed"), "run0", monkeypatch)
    assert patched_end == [NAME]
    assert f"MLflow's run run0 of {NAME} stays open: Max retries exceeded" in caplog.text


async def test_mlflow_run_of_an_earlier_success_stays_one(
    mlflow: Server, patched_end: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was away when the new training began."""
    run = Run(Info("run0", "1", "train", status="FINISHED"), Data(tags={"tony.verdict": "SUCCEEDED"}))
    mlflow.runs.append(run)
    await end_as(TrainTaskState(is_over=True, state="failed"), run.info.run_id, monkeypatch)
    assert patched_end == [NAME]
    assert run.info.status == "FINISHED"


async def test_mlflow_run_of_another_training_stays_as_it_is(
    mlflow: Server, patched_end: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow's store of the task, where more people write than may change the task, has named it."""
    run = Run(Info("run0", "1", "train"), Data(tags={"tony.training": "theirs-1"}))
    mlflow.runs.append(run)
    await end_as(TrainTaskState(is_over=True, state="failed"), run.info.run_id, monkeypatch, "mine-0")
    assert patched_end == [NAME]
    assert (run.info.status, run.data.tags) == ("RUNNING", {"tony.training": "theirs-1"})
    assert "run0, which Airflow's store names, does not belong to mine-0" in caplog.text


NAME = "application_1_0001"


@pytest.fixture
def patched_end(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The applications that were ended, of a cluster that ends each at once."""
    ended: list[str] = []
    monkeypatch.setattr(termination, "stop_job", lambda *_, **__: None)
    monkeypatch.setattr(termination, "end_job", lambda job, _: ended.append(job.application_id))
    return ended


async def end_as(states: TrainTaskState, run_id: str, monkeypatch: pytest.MonkeyPatch, training: str = "") -> None:
    """A user has ended the deferred task, which is in this state by then."""

    async def ask(task: TrainTask, seconds: float) -> TrainTaskState:
        return states

    monkeypatch.setattr(TrainTask, "ask", ask)
    trigger = trigger_for(Identity("x", "0"), NAME, mlflow=OpenMlflowRun("mlflow_default", run_id, training))
    trigger.task_instance = cast(Any, SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1))
    await trigger.on_kill()
    await asyncio.to_thread(lambda: mlflow_server._closing.submit(bool).result(DEADLINE))  # after what it does before


@pytest.mark.parametrize(("states", "ends"), [(TrainTaskState(), False), (TrainTaskState(True, "failed"), True)])
async def test_an_older_airflow_has_to_tell_the_patched_tasks_state_before_anything_is_ended(
    older_airflow: None,
    patched_end: list[str],
    monkeypatch: pytest.MonkeyPatch,
    states: TrainTaskState,
    ends: bool,
) -> None:
    """All that such a trigger knows is that it was cancelled, as by a triggerer that goes down."""
    await end_as(states, "run0", monkeypatch)
    assert patched_end == ([NAME] if ends else [])


async def test_all_of_many_triggers_that_are_killed_at_once_end_their_applications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a scripted cluster, whose applications take their time: Airflow gives each trigger some seconds only."""
    stopped, gate = set(), threading.Event()

    def end(*_: Any) -> None:
        gate.wait(DEADLINE)

    monkeypatch.setattr(tony, "TonyHook", mock.MagicMock())
    monkeypatch.setattr(termination, "stop_job", lambda job, *_, **__: stopped.add(job.application_id))
    monkeypatch.setattr(termination, "end_job", end)
    names = [f"application_1_{number:04}" for number in range(60)]
    kills = [asyncio.wait_for(trigger_for(Identity("x", "0"), name).on_kill(), 0.5) for name in names]
    await asyncio.gather(*kills, return_exceptions=True)
    await asyncio.to_thread(until, lambda: stopped == set(names), "all of them to be stopped", DEADLINE)
    gate.set()


async def test_the_queue_deadline_is_judged_by_the_job_itself(local: TonyHook, tmp_path: Path) -> None:
    """The list says RUNNING of a job that has its containers, and of one that waits for them."""
    go = tmp_path / "go"
    submitted = submit(local, f"while ! test -e {go}; do sleep 0.1; done")

    def runs() -> bool:  # until its status says so it waits, and is ended
        status = local.job_status(*submitted)
        return status is not None and status.state is JobState.RUNNING

    await asyncio.to_thread(until, runs, "the job to run", DEADLINE)
    trigger = trigger_for(*submitted, queue=time.time() - 1)
    event = asyncio.get_running_loop().create_task(first_event(trigger))
    await asyncio.wait([event], timeout=1.0)
    go.touch()
    assert (await event)["reason"] == WatchEnd.FINISHED


async def test_being_cancelled_ends_nothing(local: TonyHook, marker: Marker) -> None:
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    await cancelled(trigger_for(identity, application_id))
    assert is_alive(local, application_id)
    local.kill(application_id, "enough")


async def test_on_kill_ends_its_own_application_only(local: TonyHook, marker: Marker) -> None:
    other = Marker(marker.path.with_name("other"))
    identity, application_id = submit(local, marker.forever)
    _, neighbour = submit(local, other.forever, run_id="yesterday")
    until(lambda: marker.path.exists() and other.path.exists(), "both user processes", DEADLINE)
    await trigger_for(identity, application_id, whose="try 3 (0198)").on_kill()
    assert not is_alive(local, application_id)
    assert killed_for(local.application(application_id)) == "try 3 (0198)"
    assert is_alive(local, neighbour)
    local.kill(neighbour, "enough")


async def test_on_kill_may_be_told_to_keep_it(local: TonyHook, marker: Marker) -> None:
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    await trigger_for(identity, application_id, kill=False).on_kill()
    assert is_alive(local, application_id)
    local.kill(application_id, "enough")
    local.job(application_id, identity).clean_up()
    assert ended(local)


async def test_deadline_passed_while_no_triggerer_ran(local: TonyHook, marker: Marker) -> None:
    identity, application_id = submit(local, marker.forever)
    event = await first_event(trigger_for(identity, application_id, end=time.time() - 1))
    assert event["reason"] == WatchEnd.DEADLINE
    assert is_alive(local, application_id)
    local.kill(application_id, "enough")


async def test_a_connection_that_was_removed_meanwhile_is_an_error_event(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, application_id = submit(local, "true")
    event = await first_event(trigger_for(identity, application_id, tony_conn_id="tony_removed"))
    assert event["reason"] is None
    assert "airflow connections add tony_removed" in event["error"]


@pytest.mark.parametrize(("command", "told"), [("true", True), ("exit 3", False)])
async def test_a_result_that_cannot_be_read_is_an_error_event_where_it_is_needed(
    local: TonyHook, command: str, told: bool
) -> None:
    identity, application_id = submit(local, command, restart={"budget": 0})
    assert (await first_event(trigger_for(identity, application_id)))["reason"] == WatchEnd.FINISHED
    uri = f"{local.job(application_id, identity).directory}/result.json"
    write_atomically(local.storage(), uri, b"changed by hand")
    event = await first_event(trigger_for(identity, application_id))
    if told:
        assert event["reason"] is None
        assert f"cannot read {uri}: " in event["error"]
    else:
        assert event["reason"] == WatchEnd.FINISHED


async def cancelled(trigger: TonyJobTrigger) -> None:
    """Let it look a few times, then cancel it, as a triggerer that goes down does."""
    looked = asyncio.get_running_loop().create_task(first_event(trigger))
    await asyncio.wait([looked], timeout=1.0)
    looked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looked
