"""What tasks make of Airflow's state store when somebody has written there who may only clear or mark them."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from airflow.sdk.bases.operator import TriggerFailureReason

from tests.failing_triggers import TriggersFail
from tests.operators.jobs import DEADLINE, Marker, job
from tests.operators.test_deferral import Kept
from tests.operators.trainings import Telling, Training
from tests.waiting import until
from tony_provider.cluster.interface import ApplicationState
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.exceptions import TonyKilledExternally, TonyTaskKilled
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.try_state import (
    MAX_RESUBMISSIONS,
    STATE_KEY,
    StateStore,
    TryInfo,
    may_resubmit,
    remembered,
)
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.sensors import sensor_run
from tony_provider.watching.termination import KillOrder

LOG = cast(Any, logging.getLogger(__name__))


class Attacked(TriggersFail, Telling):
    """While it is deferred, its note of the application is rewritten; its trigger fails."""

    theirs = ""

    def execute(self, context: Any) -> Any:
        self.act = lambda _: context["task_state_store"].set(STATE_KEY, self.theirs)
        return super().execute(context)


def test_a_task_whose_store_names_anothers_application_does_not_end_it_when_it_is_killed(
    training: Training, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = training.hook
    theirs = hook.identity(dag_id="payroll", run_id="today", task_id="train")
    Attacked.theirs = hook.submit(SubmissionRequest(parse_job(job(marker.forever)), theirs)).application_id
    until(marker.path.exists, "the other training's process", DEADLINE)
    look = TonyHook.previous_application

    def killed(self: TonyHook, identity: Identity, *, remembered: str | None = None) -> Any:
        if remembered == Attacked.theirs:
            operators[0].on_kill()  # a user marks the task just now
        return look(self, identity, remembered=remembered)

    operators: list[Attacked] = []
    resume = Attacked.resume_execution

    def noticed(self: Attacked, *arguments: Any) -> Any:
        operators.append(self)
        return resume(self, *arguments)

    monkeypatch.setattr(TonyHook, "previous_application", killed)
    monkeypatch.setattr(Attacked, "resume_execution", noticed)
    failing = {"how": TriggerFailureReason.TRIGGER_FAILURE, "act": None}
    done = training.again(job("sleep 600"), Attacked, **failing)
    assert isinstance(done.errors["train"], TonyTaskKilled)
    (mine,) = (each for each in training.applications if each != Attacked.theirs)
    assert (hook.application(mine) or pytest.fail("its own is not known")).is_final
    assert not (hook.application(Attacked.theirs) or pytest.fail("the other one is not known")).is_final
    hook.kill(Attacked.theirs, "the test is over")


@pytest.mark.parametrize("kept", ["../../payroll-0/applications/application_1_1", "x/y", "application_1_1?a", 5, None])
def test_what_is_no_applications_id_is_not_remembered(kept: Any) -> None:
    store = StateStore(cast(Any, {"task_state_store": Kept({STATE_KEY: kept})}), LOG)
    assert remembered(store) is None


@pytest.mark.parametrize(
    "kept", [{"updated_seen": "x"}, {"slow_since": [1]}, {"application_id": {}}, {"absent_since": "9" * 5000}]
)
def test_a_sensors_memory_that_is_none_is_told_and_forgotten(kept: Any, caplog: pytest.LogCaptureFixture) -> None:
    context: Any = {"task_state_store": Kept(tony_sensor_memory={"try": 1, **kept}), "task_reschedule_count": 1}
    context["ti"] = type("Ti", (), {"try_number": 1})
    assert sensor_run.load_sensor_memory(context, LOG) is None
    assert "The sensor's memory of its last poke is unreadable" in caplog.text
    assert len(caplog.text) < 2000


@pytest.mark.long  # the count of it is below
def test_a_job_that_says_it_was_killed_for_another_try_begins_a_few_times_only(training: Training) -> None:
    """How a job has ended is said in its own words: without a count it could have its task submit it for ever."""
    stop = threading.Event()

    def kill_each() -> None:
        while not stop.wait(0.1):
            for each in training.applications:
                known = training.hook.application(each)
                if known is not None and known.state is ApplicationState.RUNNING:
                    training.hook.kill(each, str(KillOrder("enough", "try 9 (0198)")))

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_each)
        try:
            done = training.again(job("sleep 600"))
        finally:
            stop.set()
        killing.result()
    assert isinstance(done.errors["train"], TonyKilledExternally)
    assert len(training.applications) == 1 + MAX_RESUBMISSIONS


def test_where_nobody_counts_nothing_begins_anew() -> None:
    this_try = TryInfo(1, 1, "0198")
    counting = StateStore(cast(Any, {"task_state_store": Kept({})}), LOG)
    given = [may_resubmit(counting, this_try) for _ in range(MAX_RESUBMISSIONS + 1)]
    assert given == [True] * MAX_RESUBMISSIONS + [False]
    assert may_resubmit(counting, TryInfo(2, 2, "0199"))
    assert not may_resubmit(StateStore(cast(Any, {}), LOG), this_try)
