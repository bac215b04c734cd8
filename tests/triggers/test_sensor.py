"""The triggers of sensors on the embedded local cluster: what they yield, and what they let live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import attrs
import pytest
from airflow.triggers.base import TriggerEvent

from tests.operators.jobs import DEADLINE, Marker
from tests.triggers.test_tony import is_alive, submit
from tests.waiting import until
from tony_provider.cluster.local.local_cluster import LocalCluster
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.triggers.tony import VERSION, DeferredByNewerRelease, DeferredSensor, SensorEvent, TonySensorTrigger
from tony_provider.watching.conditions import HeartbeatLimits, SensorCriteria, SensorEnd, SensorOutcome
from tony_provider.watching.job_poller import FoundApplication, JobTarget

LIMITS = HeartbeatLimits(max_heartbeat_age=60.0, min_steps_per_second=None, slow_for=60.0, task_types=None)


def trigger_for(
    target: JobTarget,
    *states: str,
    start_timeout: float | None = None,
    version: int = VERSION,
    **changes: Any,
) -> TonySensorTrigger:
    """The trigger of a sensor of these states, or of heartbeats where there are none."""
    criteria = SensorCriteria(start_timeout, list(states)) if states else SensorCriteria(start_timeout, None, LIMITS)
    sensor = DeferredSensor("tony_default", None, target, None, criteria, 0.2, began=time.time(), end=None)
    return TonySensorTrigger(sensor=to_plain(attrs.evolve(sensor, **changes)), version=version)


async def first_event(trigger: TonySensorTrigger) -> SensorEvent:
    async def get() -> TriggerEvent:
        return await anext(trigger.run())

    event = (await asyncio.wait_for(get(), DEADLINE)).payload
    assert json.loads(json.dumps(event)) == event
    return from_plain(event, SensorEvent)


async def outcome_of(trigger: TonySensorTrigger) -> SensorOutcome:
    event = await first_event(trigger)
    assert event.outcome is not None, event.error
    return event.outcome


async def test_another_triggerer_can_go_on_with_it_and_being_cancelled_ends_nothing(
    local: TonyHook, marker: Marker
) -> None:
    identity, application_id = submit(local, marker.forever)
    until(marker.path.exists, "the user process", DEADLINE)
    target = JobTarget(identity=identity)
    triggers: list[TonySensorTrigger] = [
        trigger_for(target, "SUCCEEDED", "KILLED", start_timeout=0.1),
        trigger_for(target, start_timeout=0.1),
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
        assert event.version == VERSION
        assert event.outcome is not None
        ends.append(event.outcome.end)
        assert event.outcome.found == FoundApplication(application_id, identity)
    assert ends == [SensorEnd.REACHED, SensorEnd.MISSED]


async def test_a_timeout_that_passed_while_no_triggerer_ran(local: TonyHook) -> None:
    trigger = trigger_for(JobTarget(tag="nobody"), "RUNNING", end=time.time() - 1)
    assert (await outcome_of(trigger)).end is SensorEnd.TIMEOUT


async def test_a_connection_that_was_removed_meanwhile_is_an_error_event(local: TonyHook) -> None:
    target = JobTarget(application_id="application_1_0001")
    event = await first_event(trigger_for(target, "RUNNING", tony_conn_id="tony_removed"))
    assert (event.outcome, event.permanent) == (None, True)
    assert "airflow connections add tony_removed" in event.error


async def test_a_task_that_a_later_release_deferred_is_not_misread() -> None:
    """And not in the constructor, whose errors end the whole triggerer."""
    trigger = trigger_for(JobTarget(tag="x"), "RUNNING", version=VERSION + 1)
    TonySensorTrigger(**{**trigger.serialize()[1], "sensor": {"known_by": "another name"}})
    with pytest.raises(DeferredByNewerRelease, match="newer release of tony-provider"):
        await anext(trigger.run())


async def test_times_of_another_machine_are_by_the_scripted_clock_of_the_cluster(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer's machine is two hours ahead of the cluster and of the worker that deferred the sensor."""
    monkeypatch.setattr(LocalCluster, "clock_ahead", -7200.0)
    now = time.time() - 7200
    target = JobTarget(identity=local.identity(dag_id="d", run_id="r", task_id="none"))
    trigger = trigger_for(target, "SUCCEEDED", start_timeout=3600.0, began=now, end=now + 3600)
    looking = asyncio.get_running_loop().create_task(first_event(trigger))
    await asyncio.wait([looking], timeout=2.0)
    assert not looking.done(), "its time is not over"
    looking.cancel()
    over = trigger_for(target, "SUCCEEDED", began=now, end=now)
    assert (await outcome_of(over)).end is SensorEnd.TIMEOUT
