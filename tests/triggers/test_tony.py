"""TonyJobTrigger on the embedded local cluster: what it yields, and what it lets live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from tests.operators.jobs import DEADLINE, Marker, ended, job
from tests.waiting import until
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.watch import Reason
from tony_provider.runtime.spec.parse import parse_job
from tony_provider.runtime.storage.helpers import write_atomically
from tony_provider.triggers.tony import TonyJobTrigger


def submit(hook: TonyHook, command: str, run_id: str = "today", **more: Any) -> tuple[Identity, str]:
    identity = hook.identity(dag_id="trigger_test", run_id=run_id, task_id="train")
    return identity, hook.submit(parse_job(job(command, **more)), identity=identity)


def trigger_for(identity: Identity, application_id: str, **changes: Any) -> TonyJobTrigger:
    arguments: dict[str, Any] = {
        "tony_conn_id": "tony_default",
        "proxy_user": None,
        "slug": identity.slug,
        "digest": identity.digest,
        "application_id": application_id,
        "attached": False,
        "poll_interval": 0.2,
        "end": None,
        "queue": None,
        "kill": True,
    }
    return TonyJobTrigger(**arguments | changes)


async def first_event(trigger: TonyJobTrigger) -> dict[str, Any]:
    async def get() -> TriggerEvent:
        return await anext(trigger.run())

    return (await asyncio.wait_for(get(), DEADLINE)).payload  # type: ignore[no-any-return]


def is_alive(hook: TonyHook, application_id: str) -> bool:
    application = hook.application(application_id)
    return application is not None and not application.is_final


async def test_yields_one_event_when_the_job_has_ended(local: TonyHook) -> None:
    trigger = trigger_for(*submit(local, "exit 3", restart={"budget": 0}))
    event = await first_event(trigger)
    assert event["application_id"] == trigger.application_id
    assert (event["reason"], event["error"], event["attached"]) == (Reason.FINISHED, None, False)
    assert json.loads(json.dumps(event)) == event


async def test_another_triggerer_can_go_on_with_it(local: TonyHook, tmp_path: Path) -> None:
    first = trigger_for(*submit(local, f"while ! test -e {tmp_path}/go; do sleep 0.1; done"))
    await cancelled(first)
    path, arguments = first.serialize()
    assert path == f"{TonyJobTrigger.__module__}.{TonyJobTrigger.__qualname__}"
    second = TonyJobTrigger(**json.loads(json.dumps(arguments)))
    (tmp_path / "go").touch()
    assert (await first_event(second))["reason"] == Reason.FINISHED


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
    await trigger_for(identity, application_id).on_kill()
    assert not is_alive(local, application_id)
    assert is_alive(local, neighbour)
    local.kill(neighbour, "enough")


async def test_on_kill_may_be_told_to_keep_it(local: TonyHook, marker: Marker) -> None:
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    await trigger_for(identity, application_id, kill=False).on_kill()
    assert is_alive(local, application_id)
    local.kill(application_id, "enough")
    local.cleanup(identity, application_id)
    assert ended(local)


@pytest.mark.parametrize("attached", [False, True])
async def test_deadline_passed_while_no_triggerer_ran(local: TonyHook, marker: Marker, attached: bool) -> None:
    identity, application_id = submit(local, marker.forever)
    event = await first_event(trigger_for(identity, application_id, end=time.time() - 1, attached=attached))
    assert (event["reason"], event["attached"]) == (Reason.DEADLINE, attached)
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
    assert (await first_event(trigger_for(identity, application_id)))["reason"] == Reason.FINISHED
    uri = f"{local.application_dir(identity, application_id)}/result.json"
    write_atomically(local.storage(), uri, b"changed by hand")
    event = await first_event(trigger_for(identity, application_id))
    if told:
        assert event["reason"] is None
        assert f"cannot read {uri}: " in event["error"]
    else:
        assert event["reason"] == Reason.FINISHED


async def cancelled(trigger: TonyJobTrigger) -> None:
    """Let it look a few times, then cancel it, as a triggerer that goes down does."""
    looked = asyncio.get_running_loop().create_task(first_event(trigger))
    await asyncio.wait([looked], timeout=1.0)
    looked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looked
