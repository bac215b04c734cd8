"""What stands in for that which an older Airflow lacks.

`make airflows` runs this on each. Airflow says that it is 3.0.6, so that the oldest branch is taken on all of them.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tony_provider
from tests.waiting import until
from tony_provider import compat
from tony_provider.compat import (
    KNOWN_CONTEXT_KEYS,
    MASKER,
    PORTAL,
    RETRY_POLICIES,
    TASK_STATES,
    TRIGGERS_ARE_KILLED,
    AirflowTooOld,
    Capability,
    RefusedRetryPolicy,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
    without_empty_xcoms,
)
from tony_provider.portal.plugin import TonyPlugin
from tony_provider.sensors.tony import TonyJobSensor

older = pytest.mark.usefixtures("older_airflow")


def loaded_anew(name: str) -> ModuleType:
    """Load a module of tony_provider a second time, while Airflow says that it is older."""
    file = Path(tony_provider.__path__[0]) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"older_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- triggers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def killed_trigger_module(older_airflow: None) -> ModuleType:
    return loaded_anew("triggers/tony")


def trigger_of(module: ModuleType, act: Any) -> Any:
    class Trigger(module.KilledTrigger):  # type: ignore[name-defined, misc]
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "tests.Trigger", {}

        async def run(self) -> Any:
            await asyncio.Event().wait()
            yield

        async def on_kill(self) -> None:
            await act()

    return Trigger()


async def run_and_cancel(trigger: Any) -> None:
    """As a triggerer does: what is run is cancelled, and then cleaned up whatever has become of it."""
    running = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await trigger.cleanup()


@pytest.mark.parametrize("has_told", [False, True])
async def test_a_trigger_that_is_cancelled_before_its_event_is_told_as_of_a_users_action(
    killed_trigger_module: ModuleType, has_told: bool
) -> None:
    told = asyncio.Event()

    async def act() -> None:
        told.set()

    trigger = trigger_of(killed_trigger_module, act)
    trigger.has_told = has_told
    await run_and_cancel(trigger)
    assert told.is_set() is not has_told


@pytest.mark.parametrize("wrong", [OSError("the disk is full"), None])
async def test_what_a_cancelled_trigger_cannot_do_is_in_the_log_and_ends_no_triggerer(
    killed_trigger_module: ModuleType,
    wrong: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``wrong``: None: it takes for ever."""
    monkeypatch.setattr(killed_trigger_module, "KILL_SECONDS", 0.05)

    async def act() -> None:
        if wrong is not None:
            raise wrong
        await asyncio.Event().wait()

    trigger = trigger_of(killed_trigger_module, act)
    trigger._log = logging.getLogger("older")
    await run_and_cancel(trigger)
    assert "The cleanup of a cancelled trigger failed" in caplog.text
    assert (str(wrong) if wrong is not None else "TimeoutError") in caplog.text


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, thread_name_prefix="older") as pool:
        yield pool


@older
async def test_what_is_done_in_a_thread_gives_what_it_returns_or_raises(pool: ThreadPoolExecutor) -> None:
    assert (await compat.in_thread(threading.current_thread, pool)).name.startswith("older")
    assert await compat.in_thread(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await compat.in_thread(lambda: 1 // 0, pool)


@older
async def test_who_is_cancelled_leaves_a_question_to_its_end(
    pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    begun, answered, over = threading.Event(), threading.Event(), []

    def ask() -> None:
        begun.set()
        answered.wait()
        over.append(True)
        raise OSError("nobody hears of it")

    asking = asyncio.ensure_future(compat.in_thread(ask, pool))
    await asyncio.to_thread(begun.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    left = len(compat._asked)
    answered.set()
    assert left == 1  # cancelled itself, it would be answered to nobody
    await asyncio.to_thread(until, lambda: over and not compat._asked, "the question's end")
    gc.collect()
    assert not caplog.records  # such as asyncio's, of an exception that was never retrieved


# -- what people write ------------------------------------------------------------------------------------------------


@older
def test_a_retry_policy_is_refused_when_the_dag_file_is_parsed() -> None:
    with pytest.raises(AirflowTooOld, match=r"^Mine, a retry policy, needs Airflow 3\.3 or newer, .* Leave "):
        type("Mine", (RefusedRetryPolicy,), {})("whatever it takes")


@older
def test_a_sensor_that_is_rescheduled_is_refused() -> None:
    with pytest.raises(AirflowTooOld, match=r'with mode="reschedule" needs Airflow 3\.3 or newer, .* Use deferr'):
        TonyJobSensor(task_id="wait", application_id="application_1_0001", mode="reschedule")


@older
def test_there_is_no_portal() -> None:
    plugin = TonyPlugin()
    assert plugin.react_apps == []
    assert plugin.fastapi_apps == []
    with pytest.raises(AirflowTooOld, match=PORTAL.without[:20]):
        loaded_anew("portal/stored_jobs")


@older
def test_keys_without_a_value_are_left_out_where_airflow_would_fail_the_task() -> None:
    result = {"model_dir": "hdfs://nn/model", "step": 0, "value": None}
    assert without_empty_xcoms(result) == {"model_dir": "hdfs://nn/model", "step": 0}


# -- on the Airflow that is here, as old as it is ---------------------------------------------------------------------


def test_what_has_another_place_in_older_airflows_is_there() -> None:
    assert all(issubclass(each, BaseException) for each in (TaskDeferralError, TaskDeferralTimeout, TaskDeferred))
    assert {"ti", "dag_run", "params"} <= set(KNOWN_CONTEXT_KEYS)
    assert importlib.util.find_spec(MASKER) is not None


@pytest.mark.parametrize(
    ("capability", "module", "name"),
    [
        (TASK_STATES, "airflow.sdk", "NEVER_EXPIRE"),
        (PORTAL, "airflow.models.task_state_store", "TaskStateStoreModel"),
        (RETRY_POLICIES, "airflow.sdk.definitions.retry_policy", "RetryPolicy"),
        (TRIGGERS_ARE_KILLED, "airflow.triggers.base", "BaseTrigger.on_kill"),
    ],
)
def test_what_is_said_to_be_there_is_and_nothing_else(capability: Capability, module: str, name: str) -> None:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = None
    assert capability.is_here is (found is not None)
