"""TonyTrainOperator in a real Airflow (dag.test), on the real embedded local cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.serialization.serialized_objects import DagSerialization

from tests.airflow_dags import run
from tests.operators.jobs import DEADLINE, Marker, applications, dag_of, ended, job, train
from tests.waiting import until
from tony_provider.cluster.attempt import Attempt
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.exceptions import (
    TonyJobFailed,
    TonyJobRejected,
    TonyKilledExternally,
    TonySpecError,
    TonyTaskKilled,
)
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.killing import KILLED_BY_AIRFLOW
from tony_provider.operators.result import JobResult
from tony_provider.operators.start import Started
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.storage.helpers import read_text

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)


class ActsOnceAttached(TonyTrainOperator):
    """Something happens to the application just after this task has attached to it."""

    def __init__(self, *, act: Callable[[], None], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.act = act

    def _start(self, *arguments: Any) -> Started:
        started = super()._start(*arguments)
        if started.attached:
            self.act()
        return started


@pytest.mark.parametrize("deferrable", [False, True])
def test_success(local: TonyHook, deferrable: bool) -> None:
    command = """
        echo '{"step": 3, "total_steps": 3, "loss": 0.25}' >> $TONY_METRICS_FILE
        echo weights > $TONY_MODEL_DIR/model.bin
    """
    done = train(job(command), deferrable=deferrable)
    assert done.state == "success"
    result = done.results["train"]
    assert result["final_status"] == "SUCCEEDED"
    assert result["metrics"] == {"loss": 0.25}
    assert (result["step"], result["total_steps"]) == (3, 3)
    assert read_text(local.storage(), f"{result['model_dir']}/model.bin") == "weights\n"
    assert result["duration_s"] > 0
    instance = done.task_instances["train"]
    for key in JobResult.of("application_1_0001", "file:///x", None, None).to_dict():
        assert instance.xcom_pull(task_ids="train", key=key) == result[key]


def test_failure_names_task_exit_code_and_last_words(local: TonyHook) -> None:
    done = train(job("echo the data are gone >&2; exit 7", restart={"budget": 0}))
    assert done.state == "failed"
    error = done.errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.failure is not None
    assert (error.failure.task, error.failure.exit_code) == ("worker:0", 7)
    for words in ("worker:0", "7", "the data are gone"):
        assert words in str(error)


def test_templates_and_their_text(local: TonyHook) -> None:
    spec = job("echo $GREETING > $TONY_MODEL_DIR/greeting; exit {{ params.code }}")
    spec["tasks"]["worker"]["instances"] = "{{ 1 + params.code }}"
    done = train(spec, env_vars={"GREETING": "hello {{ dag.dag_id }}"}, overrides='{"name": "{{ task.task_id }}-1"}')
    assert done.state == "success"
    assert read_text(local.storage(), f"{done.results['train']['model_dir']}/greeting") == "hello operator_test\n"


def test_job_in_a_file_beside_the_dag(local: TonyHook) -> None:
    done = train("greeting.tony.yaml")
    assert done.state == "success"
    result = done.results["train"]
    assert read_text(local.storage(), f"{result['model_dir']}/greeting") == f"hello from {done.run_id}\n"


@pytest.mark.parametrize("spec", ["{{ 'framework: [' }}", job("true", framwork="typo"), "no mapping"])
def test_wrong_specification_fails_for_good_and_starts_nothing(local: TonyHook, spec: Any) -> None:
    done = train(spec, retries=3)
    assert done.state == "failed"
    assert isinstance(done.errors["train"], TonySpecError)
    assert not local.storage().exists(local.layout.root)


def test_missing_connection_says_how_to_add_it(airflow_db: None) -> None:
    done = train(job("true"), tony_conn_id="tony_nowhere", retries=3)
    error = done.errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "airflow connections add tony_nowhere" in str(error)


def test_missing_file_names_it(local: TonyHook) -> None:
    error = train(job("true", files=["no_such_script.py"])).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "no_such_script.py" in str(error)


def test_secrets_are_seen_by_the_user_process_only(
    local: TonyHook, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    secret = "pa55word-of-the-store"
    command = 'echo "$API_KEY" | tr a-z n-za-m > $TONY_MODEL_DIR/turned'
    with dag_of(job(command), secrets={"API_KEY": "{{ 'pa55word' }}-of-the-store"}) as dag:
        serialized = str(DagSerialization.serialize_dag(dag))
        done = run(dag)
    assert done.state == "success"
    model_dir = done.results["train"]["model_dir"]
    assert read_text(local.storage(), f"{model_dir}/turned") == "cn55jbeq-bs-gur-fgber\n"
    assert "of-the-store" not in serialized
    rendered = str(RenderedTaskInstanceFields.get_templated_fields(done.task_instances["train"]))
    assert "framework" in rendered
    assert secret not in rendered
    # Airflow writes to where standard output was when it was imported, which capfd does not see.
    output = pytestconfig.pluginmanager.getplugin("capturemanager").read_global_capture()
    assert done.run_id in output.out
    assert secret not in output.out + output.err
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert not holding


def test_submit_only(local: TonyHook, marker: Marker) -> None:
    done = train(job(marker.forever), wait_for_completion=False)
    assert done.state == "success"
    result = done.results["train"]
    assert result["final_status"] is None
    application = local.application(result["application_id"])
    assert application is not None
    assert not application.is_final
    local.kill(application.id, "enough")


def test_killed_by_somebody_else(local: TonyHook, marker: Marker) -> None:
    with marker.then(lambda application_id: local.kill(application_id, "carol needs the machine")):
        error = train(job(marker.forever)).errors["train"]
    assert isinstance(error, TonyKilledExternally)
    assert "carol needs the machine" in str(error)


def test_mocked_alarm_that_rings_while_the_application_is_ended(
    local: TonyHook, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, rings = TonyHook.control, iter([True])

    def ring(*arguments: Any, **more: Any) -> Any:
        answer = control(*arguments, **more)
        if next(rings, False):
            raise AirflowTaskTimeout("the alarm")
        return answer

    monkeypatch.setattr(TonyHook, "control", ring)
    # Long enough for a busy machine to have a master that can be asked.
    done = train(job(marker.forever), execution_timeout=timedelta(seconds=20))
    assert isinstance(done.errors["train"], AirflowTaskTimeout)
    assert next(rings, None) is None
    assert ended(local)


@pytest.mark.parametrize("deferrable", [False, True])
def test_execution_timeout_ends_the_application(local: TonyHook, marker: Marker, deferrable: bool) -> None:
    done = train(job(marker.forever), execution_timeout=timedelta(seconds=8), deferrable=deferrable)
    assert isinstance(done.errors["train"], AirflowTaskTimeout)
    assert ended(local)


def test_a_timeout_stays_a_timeout_though_the_kill_is_mocked_to_fail(
    local: TonyHook, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise ClusterUnreachable("nobody answers")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(TonyHook, "kill", unreachable)
        error = train(job(marker.forever), execution_timeout=timedelta(seconds=8)).errors["train"]
    assert isinstance(error, AirflowTaskTimeout)
    (application_id,) = applications(local)
    local.kill(application_id, "enough")


def test_what_a_trigger_could_not_watch_any_more_is_an_outage(local: TonyHook) -> None:
    """As it is without deferral: retry policies know the class."""
    with dag_of(job("true")) as dag:
        pass
    task = dag.task_dict["train"]
    assert isinstance(task, TonyTrainOperator)
    event = {"application_id": "application_1_0001", "attached": False, "reason": None, "error": "no answer"}
    with pytest.raises(ClusterUnreachable, match="application_1_0001 could not be watched any more: no answer"):
        task.execute_complete({}, event)


def test_sigterm_ends_the_application_and_is_no_success(local: TonyHook, marker: Marker) -> None:
    with marker.then(lambda _: os.kill(os.getpid(), signal.SIGTERM)):
        done = train(job(marker.forever))
    assert done.state == "failed"
    assert isinstance(done.errors["train"], TonyTaskKilled)
    assert ended(local)


@pytest.mark.parametrize("on_kill_action", ["kill", "keep"])
def test_sigterm_at_a_patched_in_moment_before_the_submission_lets_nothing_be_submitted(
    local: TonyHook, marker: Marker, monkeypatch: pytest.MonkeyPatch, on_kill_action: str
) -> None:
    """It has its lineage by then, and its files are staged."""
    end_others = Attempt._end_others

    def end_others_and_be_killed(attempt: Attempt) -> None:
        end_others(attempt)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Attempt, "_end_others", end_others_and_be_killed)
    error = train(job(marker.forever), on_kill_action=on_kill_action).errors["train"]
    assert isinstance(error, TonyTaskKilled)
    root = Path(local.layout.root.removeprefix("file://"))
    assert not list(root.rglob("application_*")), "neither the store nor the cluster holds anything of it"
    assert not list(root.rglob("L0001"))


def test_sigterm_may_keep_the_application(local: TonyHook, marker: Marker) -> None:
    with marker.then(lambda _: os.kill(os.getpid(), signal.SIGTERM)):
        error = train(job(marker.forever), on_kill_action="keep").errors["train"]
    assert isinstance(error, TonyTaskKilled)
    (application_id,) = applications(local)
    application = local.application(application_id)
    assert application is not None
    assert not application.is_final
    local.kill(application_id, "enough")


def test_a_next_try_attaches_to_the_live_application(local: TonyHook, tmp_path: Path) -> None:
    dates = {"logical_date": MORNING, "run_after": MORNING}
    spec = job(f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
    with dag_of(spec, wait_for_completion=False) as dag:
        first = run(dag, **dates).results["train"]["application_id"]
    with dag_of(spec, ActsOnceAttached, act=(tmp_path / "go").touch) as dag:
        done = run(dag, **dates)
    assert done.results["train"]["application_id"] == first
    assert applications(local) == [first]


def test_an_application_killed_on_behalf_of_its_own_try_is_replaced(local: TonyHook, tmp_path: Path) -> None:
    """A task that is cleared while deferred starts again before its old trigger's on_kill ends the application."""
    dates = {"logical_date": MORNING, "run_after": MORNING}
    spec = job(f"mkdir {tmp_path}/first && exec sleep 60; exit 0")
    with dag_of(spec, wait_for_completion=False) as dag:
        first = run(dag, **dates).results["train"]["application_id"]

    def kill() -> None:
        until((tmp_path / "first").exists, "the first application", DEADLINE)
        local.kill(first, KILLED_BY_AIRFLOW + "the deferred task was cleared")

    with dag_of(spec, ActsOnceAttached, act=kill) as dag:
        done = run(dag, **dates)
    assert done.state == "success"
    assert applications(local) == sorted({first, done.results["train"]["application_id"]})
    assert len(applications(local)) == 2
