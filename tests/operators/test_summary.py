"""The summary of a try's application, as Airflow has it however the try has ended."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select

from tests.operators import dying
from tests.operators.jobs import DAG_ID, DEADLINE, Marker, job, train
from tests.operators.trainings import MORNING, RUN_ID, Training
from tests.waiting import until
from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, REFUSAL_KEY
from tony_provider.exceptions import TonyPermanentFailure, TonySpecError

LONG = pytest.mark.long


def kept(key: str) -> dict[str, dict[str, Any]]:
    """By application."""
    query = select(TaskStateStoreModel).where(
        TaskStateStoreModel.dag_id == DAG_ID, TaskStateStoreModel.run_id == RUN_ID
    )
    with create_session() as session:
        rows = {row.key: json.loads(row.value) for row in session.scalars(query)}
    return {each.removeprefix(key): value for each, value in rows.items() if each.startswith(key)}


def only(key: str = JOB_KEY) -> dict[str, Any]:
    (found,) = kept(key).values()
    return found


def test_a_failure_and_the_try_after_it(training: Training) -> None:
    done = training.retried(training.mended.touch)
    assert done.state == "success"
    failed, succeeded = sorted(kept(JOB_KEY).values(), key=lambda each: each["try_number"])
    assert [failed["try_number"], succeeded["try_number"]] == [1, 2]
    assert (failed["verdict"], failed["failure_kind"], failed["failed_task"]) == ("FAILED", "USER", "worker:0")
    assert "exit code 3" in failed["reason"]
    assert (succeeded["verdict"], succeeded["reason"]) == ("SUCCEEDED", "")
    assert succeeded["framework"] == "standalone"
    assert succeeded["run_date"] == MORNING.isoformat()
    assert 0 < succeeded["submitted_ms"] < succeeded["finished_ms"]
    assert set(kept(DETAILS_KEY)) == set(kept(JOB_KEY)) == set(training.applications)
    assert "tasks.worker.command" in kept(DETAILS_KEY)[succeeded["application_id"]]["fingerprint"]
    assert "The summary" not in training.log


def test_a_refused_job_leaves_the_reason_until_a_later_try_submits_its_job(training: Training) -> None:
    training.mended.touch()
    done = training.again(training.spec(tasks={"worker": {"memory": "lots", "instances": 0}}))
    assert isinstance(done.errors["train"], TonySpecError)
    (refusal,) = kept(REFUSAL_KEY).values()
    assert refusal["try_number"] == 1
    assert "the job specification has" in refusal["text"]
    assert [key for key in ("tasks.worker.memory", "tasks.worker.instances") if key not in refusal["text"]] == []
    assert kept(JOB_KEY) == {}
    training.cleared(
        TaskInstanceState.FAILED, training.spec(queue="no-such-queue", tasks={"worker": {"memory": "1TiB"}})
    )
    (refusal,) = kept(REFUSAL_KEY).values()
    assert refusal["try_number"] == 2
    training.cleared(TaskInstanceState.FAILED, training.spec())
    assert kept(REFUSAL_KEY) == {}
    assert only()["verdict"] == "SUCCEEDED"


def test_an_import_error_is_not_retried_by_airflow(training: Training) -> None:
    done = training.retried(training.mended.touch, training.spec("exec python3 -c 'import nothing_at_all'"))
    error = done.errors["train"]
    assert isinstance(error, TonyPermanentFailure)
    assert str(error).startswith(
        f"{error.application_id} failed: ModuleNotFoundError: No module named 'nothing_at_all'"
    )
    assert "; the cluster's only node lacks a Python module or script, so a retry would fail the same way" in str(error)
    assert only()["cause"] == "ModuleNotFoundError: No module named 'nothing_at_all'"
    assert not training.mended.exists()


def test_the_next_try_of_a_cleared_task_has_the_summaries_that_airflow_has_discarded(training: Training) -> None:
    training.again()
    training.mended.touch()
    training.lose_state()
    training.cleared(TaskInstanceState.FAILED, training.spec())
    failed, succeeded = sorted(kept(JOB_KEY).values(), key=lambda each: each["try_number"])
    assert [failed["verdict"], failed["try_number"], succeeded["verdict"]] == ["FAILED", 1, "SUCCEEDED"]
    assert "exit code 3" in failed["reason"]
    assert set(kept(DETAILS_KEY)) == set(kept(JOB_KEY)) == set(training.applications)
    assert "The summary" not in training.log


@LONG
def test_a_deferred_success(training: Training) -> None:
    training.mended.touch()
    assert training.again(deferrable=True).state == "success"
    assert only()["verdict"] == "SUCCEEDED"


@LONG
def test_a_task_that_is_cleared_has_a_summary_of_each_application(training: Training) -> None:
    training.mended.touch()
    training.again()
    training.cleared(TaskInstanceState.SUCCESS, training.spec())
    assert [each["verdict"] for each in kept(JOB_KEY).values()] == ["SUCCEEDED", "SUCCEEDED"]


@LONG
@pytest.mark.parametrize("deferrable", [False, True])
def test_somebody_else_kills_it(training: Training, marker: Marker, deferrable: bool) -> None:
    with marker.then(lambda application_id: training.hook.kill(application_id, "carol has killed it")):
        training.again(job(marker.forever), deferrable=deferrable)
    found = only()
    assert found["verdict"] == "KILLED"
    assert "carol has killed it" in found["reason"]


@LONG
@pytest.mark.parametrize("deferrable", [False, True])
def test_the_timeout_of_the_task(training: Training, marker: Marker, deferrable: bool) -> None:
    training.again(job(marker.forever), execution_timeout=timedelta(seconds=8), deferrable=deferrable)
    assert only()["verdict"] == "KILLED"


@LONG
def test_the_timeout_of_the_queue(training: Training, marker: Marker) -> None:
    fills = job("", tasks={"worker": {"memory": "640MiB", "command": marker.forever}})
    blocker = train(fills, wait_for_completion=False).results["train"]["application_id"]
    until(marker.path.exists, "the job that has all the room", DEADLINE)
    training.again(queue_timeout=3)
    training.hook.kill(blocker, "the test is over")
    found = only()
    assert found["verdict"] in ("KILLED", "FAILED")
    assert found["reason"]


@LONG
def test_its_worker_is_told_to_stop(training: Training, marker: Marker) -> None:
    with marker.then(lambda _: os.kill(os.getpid(), signal.SIGTERM)):
        training.again(job(marker.forever))
    assert only()["verdict"] == "KILLED"


@LONG
def test_what_is_not_waited_for_is_listed_all_the_same(training: Training, marker: Marker) -> None:
    training.again(job(marker.forever), wait_for_completion=False)
    found = only()
    training.hook.kill(found["application_id"], "the test is over")
    assert found["verdict"] is None
    assert found["user"]


@LONG
def test_the_next_try_tells_the_end_of_what_a_dead_worker_has_left(training: Training) -> None:
    training.dies(dying.AFTER_SUBMISSION, job("sleep 60"))
    (left,) = kept(JOB_KEY)
    assert kept(JOB_KEY)[left]["verdict"] is None
    training.hook.kill(left, "carol has killed it")
    training.mended.touch()
    training.cleared(TaskInstanceState.FAILED, training.spec())
    found = kept(JOB_KEY)
    assert found[left]["verdict"] == "KILLED"
    assert len(found) == 2
