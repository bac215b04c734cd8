"""The triggers of sensors on the embedded local cluster: what they yield, and what they let live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from tests.operators.jobs import DEADLINE, Marker
from tests.triggers.test_tony import is_alive, submit
from tests.waiting import until
from tony_provider.cluster.local.local_cluster import LocalCluster
from tony_provider.hooks.tony import TonyHook
from tony_provider.triggers.job_trigger import DeferredByNewerRelease
from tony_provider.triggers.sensor_triggers import (
    VERSION,
    TonyHeartbeatTrigger,
    TonySensorTrigger,
    TonyStateTrigger,
    outcome_of,
    plain_target,
)
from tony_provider.watching.conditions import SensorEnd
from tony_provider.watching.job_poller import FoundApplication, JobTarget

LIMITS = {"max_heartbeat_age": 60.0, "min_steps_per_second": None, "slow_for": 60.0, "task_types": None}


def common(target: JobTarget, **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "tony_conn_id": "tony_default",
        "proxy_user": None,
        "target": plain_target(target),
        "train_task": None,
        "poll_interval": 0.2,
        "start_timeout": None,
        "began": time.time(),
        "end": None,
    }
    return arguments | changes


async def first_event(trigger: TonySensorTrigger) -> dict[str, Any]:
    async def get() -> TriggerEvent:
        return await anext(trigger.run())

    return (await asyncio.wait_for(get(), DEADLINE)).payload  # type: ignore[no-any-return]


async def test_another_triggerer_can_go_on_with_it_and_being_cancelled_ends_nothing(
    local: TonyHook, marker: Marker
) -> None:
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    target = JobTarget(identity=identity)
    triggers: list[TonySensorTrigger] = [
        TonyStateTrigger(states=["SUCCEEDED", "KILLED"], **common(target, start_timeout=0.1)),
        TonyHeartbeatTrigger(limits=LIMITS, **common(target, start_timeout=0.1)),
    ]
    looking = [asyncio.get_running_loop().create_task(first_event(trigger)) for trigger in triggers]
    await asyncio.wait(looking, timeout=1.0)
    for each in looking:
        each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each
    for trigger in triggers:
        await trigger.on_kill()
    assert is_alive(local, application_id)
    local.kill(application_id, "enough")
    ends = []
    for trigger in triggers:
        path, arguments = trigger.serialize()
        assert path == f"{type(trigger).__module__}.{type(trigger).__qualname__}"
        event = await first_event(type(trigger)(**json.loads(json.dumps(arguments))))
        assert json.loads(json.dumps(event)) == event
        assert event["version"] == VERSION
        ends.append(outcome_of(event).end)
        assert outcome_of(event).found == FoundApplication(application_id, identity)
    assert ends == [SensorEnd.REACHED, SensorEnd.MISSED]


async def test_a_timeout_that_passed_while_no_triggerer_ran(local: TonyHook) -> None:
    trigger = TonyStateTrigger(states=["RUNNING"], **common(JobTarget(tag="nobody"), end=time.time() - 1))
    assert outcome_of(await first_event(trigger)).end is SensorEnd.TIMEOUT


async def test_a_connection_that_was_removed_meanwhile_is_an_error_event(local: TonyHook) -> None:
    target = JobTarget(application_id="application_1_0001")
    event = await first_event(TonyStateTrigger(states=["RUNNING"], **common(target, tony_conn_id="tony_removed")))
    assert (event["end"], event["permanent"]) == (None, True)
    assert "airflow connections add tony_removed" in event["error"]


async def test_a_task_that_a_later_release_deferred_is_not_misread() -> None:
    trigger = TonyStateTrigger(states=["RUNNING"], **common(JobTarget(tag="x"), version=VERSION + 1))
    with pytest.raises(DeferredByNewerRelease, match="newer release of tony-provider"):
        await anext(trigger.run())


async def test_times_of_another_machine_are_by_the_scripted_clock_of_the_cluster(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer's machine is two hours ahead of the cluster and of the worker that deferred the sensor."""
    monkeypatch.setattr(LocalCluster, "clock_ahead", -7200.0)
    now = time.time() - 7200
    target = JobTarget(identity=local.identity(dag_id="d", run_id="r", task_id="none"))
    trigger = TonyStateTrigger(states=["SUCCEEDED"], **common(target, start_timeout=3600.0, began=now, end=now + 3600))
    looking = asyncio.get_running_loop().create_task(first_event(trigger))
    await asyncio.wait([looking], timeout=2.0)
    assert not looking.done(), "its time is not over"
    looking.cancel()
    over = TonyStateTrigger(states=["SUCCEEDED"], **common(target, began=now, end=now))
    assert outcome_of(await first_event(over)).end is SensorEnd.TIMEOUT
