"""TonyJobSensor in a real Airflow (dag.test), on the real embedded local cluster."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowTaskTimeout, TaskDeferred

from tests.failing_triggers import TriggersFail
from tests.operators.jobs import Marker, job
from tests.sensors.watched import MODES, identity, running, submit, until_ended, watch
from tony_provider.exceptions import TonyJobMissed, TonyJobRejected, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.operators.try_state import MAX_TRIGGER_FAILURES
from tony_provider.sensors.tony import TonyJobSensor


@pytest.mark.parametrize("how", MODES)
def test_a_job_that_runs_is_found_by_its_task(local: TonyHook, marker: Marker, how: dict[str, Any]) -> None:
    with running(local, marker.path, marker.forever) as application_id:
        done = watch(TonyJobSensor, train_task_id="train", **how)
        assert done.state == "success", done.errors
        assert done.results["watch"] == {
            "application_id": application_id,
            "state": "RUNNING",
            "step": None,
            "total_steps": None,
            "steps_per_second": None,
        }
        assert done.task_instances["watch"].xcom_pull(task_ids="watch", key="application_id") == application_id
        application = local.application(application_id)
        assert application is not None
        assert not application.is_final


@pytest.mark.parametrize("how", MODES[:2])
@pytest.mark.parametrize("by", ["application_id", "application_tag", "own tag"])
def test_a_job_is_found_by_its_id_and_by_tags(local: TonyHook, by: str, how: dict[str, Any]) -> None:
    application_id = submit(local, """echo '{"step": 3, "total_steps": 4}' >> $TONY_METRICS_FILE""", tags=["nightly"])
    targets: dict[str, dict[str, Any]] = {
        "application_id": {"application_id": application_id},
        "application_tag": {"application_tag": identity(local).tag},
        "own tag": {"application_tag": "nightly"},
    }
    done = watch(TonyJobSensor, states="SUCCEEDED", **targets[by], **how)
    assert done.state == "success", done.errors
    assert done.results["watch"]["application_id"] == application_id
    assert (done.results["watch"]["step"], done.results["watch"]["total_steps"]) == (3, 4)


@pytest.mark.parametrize("how", MODES)
def test_a_template_that_gives_nothing_is_not_given(local: TonyHook, marker: Marker, how: dict[str, Any]) -> None:
    """A parameter that was left empty comes as the text None."""
    nothing: dict[str, Any] = {
        "application_id": "{{ none }}",
        "map_index": " ",
        "checkpoint_key": "",
        "proxy_user": "{{ none }}",
    }
    with running(local, marker.path, marker.forever) as application_id:
        done = watch(TonyJobSensor, train_task_id="{{ 'train' }}", **nothing, **how)
        assert done.state == "success", done.errors
        assert done.results["watch"]["application_id"] == application_id


class WatchesWithoutTriggers(TriggersFail, TonyJobSensor):
    pass


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_a_trigger_that_fails_is_replaced_and_at_last_the_worker_looks(
    local: TonyHook, marker: Marker, tmp_path: Path, mode: str
) -> None:
    """Where it would be rescheduled, or is to skip softly, no less."""
    deferrals: list[TaskDeferred] = []

    def act(deferral: TaskDeferred) -> None:
        deferrals.append(deferral)
        if len(deferrals) > MAX_TRIGGER_FAILURES:
            (tmp_path / "go").touch()

    steps = f"""touch {marker.path}; while ! test -e {tmp_path}/go; do sleep 0.1; done; sleep 1"""
    with running(local, marker.path, steps) as application_id:
        done = watch(
            WatchesWithoutTriggers,
            train_task_id="train",
            states="SUCCEEDED",
            how=TriggerFailureReason.TRIGGER_FAILURE,
            act=act,
            mode=mode,
            soft_fail=True,
        )
        assert done.state == "success", done.errors
        assert done.results["watch"]["application_id"] == application_id
    assert len(deferrals) == MAX_TRIGGER_FAILURES + 1
    began = [deferral.trigger.sensor.began for deferral in deferrals]
    assert began == sorted(set(began)), "what a trigger had seen went with it: start_timeout counts anew"


def test_the_worker_heeds_what_is_left_of_its_execution_timeout(local: TonyHook, marker: Marker) -> None:
    with running(local, marker.path, marker.forever):
        done = watch(
            WatchesWithoutTriggers,
            train_task_id="train",
            states="SUCCEEDED",
            how=TriggerFailureReason.TRIGGER_FAILURE,
            act=lambda _: None,
            execution_timeout=timedelta(seconds=3),
        )
    assert isinstance(done.errors["watch"], AirflowTaskTimeout)


def test_a_deferral_that_nobody_ended_in_time_is_a_timeout(local: TonyHook, marker: Marker) -> None:
    with running(local, marker.path, marker.forever):
        done = watch(
            WatchesWithoutTriggers,
            train_task_id="train",
            how=TriggerFailureReason.TRIGGER_TIMEOUT,
            act=lambda _: None,
        )
    assert isinstance(done.errors["watch"], AirflowSensorTimeout)


@pytest.mark.parametrize("how", MODES)
def test_a_retry_is_followed_to_its_new_application(
    local: TonyHook, marker: Marker, tmp_path: Path, how: dict[str, Any]
) -> None:
    fail = tmp_path / "fail"
    first = submit(local, f"touch {marker.path}; while ! test -e {fail}; do sleep 0.1; done; exit 3")
    second: list[str] = []

    def retry() -> None:
        until_ended(local, first)
        second.append(submit(local, "true"))

    thread = threading.Thread(target=retry)
    thread.start()

    class FailsOnceLookedAt(TonyJobSensor):
        def execute(self, context: Any) -> Any:
            fail.touch()
            return super().execute(context)

    try:
        done = watch(FailsOnceLookedAt, states=["SUCCEEDED"], train_task_id="train", **how)
    finally:
        fail.touch()
        thread.join()
    assert done.state == "success", done.errors
    assert done.results["watch"]["application_id"] == second[0] != first


@pytest.mark.parametrize("how", MODES[:2])
def test_a_training_that_airflow_has_given_up_fails_the_sensor_with_what_failed(
    local: TonyHook, how: dict[str, Any]
) -> None:
    spec = job("echo the data are gone >&2; exit 7", restart={"budget": 0})
    train = TonyTrainOperator(task_id="train", job=spec, poll_interval=0.5)
    error = watch(TonyJobSensor, train=train, train_task_id="train", **how).errors["watch"]
    assert isinstance(error, TonyJobMissed)
    for words in ("FAILED", "worker:0", "7", "the data are gone"):
        assert words in str(error)


@pytest.mark.parametrize("how", MODES[:2])
def test_soft_fail_skips(local: TonyHook, how: dict[str, Any]) -> None:
    submit(local, "exit 3")
    done = watch(TonyJobSensor, states="SUCCEEDED", application_tag=identity(local).tag, soft_fail=True, **how)
    assert done.task_instances["watch"].state == "skipped"


@pytest.mark.parametrize("how", MODES)
def test_start_timeout(local: TonyHook, how: dict[str, Any]) -> None:
    error = watch(TonyJobSensor, train_task_id="train", start_timeout=1.0, **how).errors["watch"]
    assert isinstance(error, AirflowSensorTimeout)
    words = f"there was no application with the tag {identity(local).tag} within start_timeout (1 s); the training "
    assert words in str(error)


@pytest.mark.parametrize("how", MODES[:2])
def test_its_timeout_ends_no_job(local: TonyHook, marker: Marker, how: dict[str, Any]) -> None:
    with running(local, marker.path, marker.forever) as application_id:
        done = watch(TonyJobSensor, train_task_id="train", states=["SUCCEEDED"], timeout=1.0, **how)
        assert isinstance(done.errors["watch"], AirflowSensorTimeout)
        application = local.application(application_id)
        assert application is not None
        assert not application.is_final


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"train_task_id": "trein"}, "did you mean train?"),
        ({"train_task_id": "watch"}, "is not another task"),
        ({"train_task_id": "train", "application_id": "application_1_0001"}, "exactly one of"),
        ({"application_id": "{{ '' }}"}, "none of them is given"),
        ({"application_id": "application_1_0001", "map_index": 0}, "require train_task_id"),
        ({"train_task_id": "train", "map_index": "x"}, "map_index: should be a whole number, not 'x'"),
        ({"train_task_id": "train", "map_index": 1, "checkpoint_key": "de"}, "keep one of them"),
        ({"train_task_id": "train", "states": "{{ 'RUNING' }}"}, "states: 'RUNING' is not a state"),
    ],
)
@pytest.mark.parametrize("how", MODES[:1])
def test_arguments_that_make_no_sense_are_told(
    local: TonyHook, arguments: dict[str, Any], words: str, how: dict[str, Any]
) -> None:
    error = watch(TonyJobSensor, **arguments, **how).errors["watch"]
    assert isinstance(error, TonySpecError)
    assert words in str(error)


@pytest.mark.parametrize("how", MODES[:2])
def test_a_connection_that_is_not_there_is_no_matter_for_a_retry(airflow_db: None, how: dict[str, Any]) -> None:
    done = watch(TonyJobSensor, application_id="application_1_0001", tony_conn_id="tony_nowhere", retries=3, **how)
    error = done.errors["watch"]
    assert isinstance(error, TonyJobRejected)
    assert "airflow connections add tony_nowhere" in str(error)


def test_one_argument_is_needed_when_the_dag_is_read() -> None:
    with pytest.raises(ValueError, match="exactly one of application_id, application_tag, train_task_id"):
        TonyJobSensor(task_id="watch")
    with pytest.raises(ValueError, match="states: 'NOWHERE' is not a state"):
        TonyJobSensor(task_id="watch", application_id="x", states=["NOWHERE"])
