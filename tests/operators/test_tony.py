"""TonyTrainOperator in a real Airflow (dag.test), on the real embedded local cluster."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferred
from airflow.sdk.log import _secrets_masker  # type: ignore[attr-defined]  # there is no other way to have it forget
from airflow.serialization.serialized_objects import DagSerialization
from jinja2 import TemplateNotFound, UndefinedError

from tests.airflow_dags import run
from tests.failing_triggers import TriggersFail
from tests.hadoop.ports import free_ports
from tests.operators.jobs import DEADLINE, Marker, applications, dag_of, ended, job, train
from tests.shared_runtime import is_untouched
from tests.waiting import until
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.submission.submitter import SubmissionAttempt
from tony_provider.exceptions import (
    TonyJobFailed,
    TonyJobRejected,
    TonyKilledExternally,
    TonySpecError,
    TonyTaskKilled,
)
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.outcome import JobResult
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.operators.training_try import OPTIONAL, ApplicationStarter, StartedApplication
from tony_provider.operators.try_state import MAX_TRIGGER_FAILURES
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.storage.base import read_text
from tony_provider.triggers.tony import WatchEvent
from tony_provider.watching.job_watch import WatchEnd
from tony_provider.watching.termination import KillOrder

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)


@pytest.fixture
def once_attached(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Have something happen to the application just after a task has attached to it."""
    start = ApplicationStarter.attach_or_submit

    def happens(act: Callable[[], None]) -> None:
        def starts(self: ApplicationStarter, *arguments: Any) -> StartedApplication:
            started = start(self, *arguments)
            if started.attached:
                act()
            return started

        monkeypatch.setattr(ApplicationStarter, "attach_or_submit", starts)

    return happens


class TooLate(TonyTrainOperator):
    """Is told by its trigger that there is nothing to wait for, for a reason, once the application has ended."""

    def __init__(self, *, reason: str, **arguments: Any) -> None:
        super().__init__(deferrable=True, **arguments)
        self.reason = reason

    def execute(self, context: Any) -> Any:
        try:
            return super().execute(context)
        except TaskDeferred as deferral:
            until(lambda: ended(TonyHook()), "the end of the application", DEADLINE)
            event = WatchEvent(deferral.trigger.job, WatchEnd(self.reason))
            return self.execute_complete(context, to_plain(event))


class TrainsWithoutTriggers(TriggersFail, TonyTrainOperator):
    pass


@pytest.mark.parametrize("deferrable", [False, True])
def test_success(local: TonyHook, pytestconfig: pytest.Config, deferrable: bool) -> None:
    command = """
        echo '{"step": 3, "total_steps": 3, "loss": 0.25}' >> $TONY_METRICS_FILE
        echo weights > $TONY_MODEL_DIR/model.bin
        echo '{"best": [1, NaN]}' > $TONY_RESULT_FILE
    """
    done = train(job(command), deferrable=deferrable)
    assert done.state == "success"
    result = done.results["train"]
    assert result["final_status"] == "SUCCEEDED"
    assert result["metrics"] == {"loss": 0.25}
    assert (result["step"], result["total_steps"]) == (3, 3)
    assert read_text(local.storage(), f"{result['model_dir']}/model.bin") == "weights\n"
    assert result["returned"] == {"best": [1, "NaN"]}
    assert result["duration_s"] > 0
    instance = done.task_instances["train"]
    for key in JobResult.of("application_1_0001", "file:///x", None, None).to_dict():
        assert instance.xcom_pull(task_ids="train", key=key) == result[key]
    output = pytestconfig.pluginmanager.getplugin("capturemanager").read_global_capture()
    assert output.out.count("Job is SUCCEEDED") == 1


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


@pytest.mark.parametrize(
    "spec", ["missing.tony.yaml", {"name": "x", "env": {"A": "{% include 'missing.tony.yaml' %}"}}]
)
def test_a_file_that_is_missing_is_told_with_where_it_was_looked_for(local: TonyHook, spec: Any) -> None:
    error = train(spec).errors["train"]
    assert isinstance(error, TemplateNotFound), "a later try may find it"
    assert f"no file missing.tony.yaml in {Path(__file__).parent}" in str(error)


def test_a_name_that_no_template_knows_is_told_with_the_text_that_has_it(local: TonyHook) -> None:
    error = train(job("true", env={"FIRST": "{{ ds }}", "DAY": "{{ params.dya }}"})).errors["train"]
    assert isinstance(error, UndefinedError)
    assert str(error).endswith("has no attribute 'dya', in '{{ params.dya }}'")


@pytest.mark.parametrize("spec", ["{{ 'framework: [' }}", job("true", framwork="typo"), "no mapping"])
def test_wrong_specification_fails_for_good_and_starts_nothing(local: TonyHook, tmp_path: Path, spec: Any) -> None:
    done = train(spec, retries=3)
    assert done.state == "failed"
    assert isinstance(done.errors["train"], TonySpecError)
    assert is_untouched(tmp_path / "tony")


def test_missing_connection_says_how_to_add_it(airflow_db: None) -> None:
    done = train(job("true"), tony_conn_id="tony_nowhere", retries=3)
    error = done.errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "airflow connections add tony_nowhere" in str(error)


def test_missing_file_names_it(local: TonyHook) -> None:
    error = train(job("true", files=["no_such_script.py"])).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "no_such_script.py" in str(error)


def test_a_dry_run_logs_the_submission_and_changes_nothing(
    local: TonyHook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = job("true", env={"GREETING": "hello"}, tags=["nightly"])
    with dag_of(spec, secrets={"API_KEY": "pa55word-of-the-store"}) as dag:
        dag.task_dict["train"].dry_run()  # type: ignore[union-attr]
    said = capsys.readouterr().out
    told = yaml.safe_load(said)
    assert "nightly" in told["request"]["application-tags"]
    assert told["description"]["job"]["env"] == {"GREETING": "hello"}
    assert "tony.user.API_KEY" in told["request"]["credentials"]
    assert "pa55word" not in said
    assert is_untouched(tmp_path / "tony")


def test_a_dry_run_shows_what_a_training_begins_with(local: TonyHook, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{local.layout.root}/models/1"
    local.storage().write(f"{model}/weights", b"w")
    with dag_of(job("true"), warm_start=model, resume="never") as dag:
        dag.task_dict["train"].dry_run()  # type: ignore[union-attr]
    assert yaml.safe_load(capsys.readouterr().out)["description"]["warm_start"] == model


def test_a_dry_run_leaves_out_what_only_a_run_could_tell(local: TonyHook, capsys: pytest.CaptureFixture[str]) -> None:
    template = "{{ prev_dagrun.run_id }}"
    with dag_of(job("true"), warm_start=template, resume=template, resume_from={"run_id": template}) as dag:
        operator = dag.task_dict["train"]
        operator.dry_run()  # type: ignore[union-attr]
    description = yaml.safe_load(capsys.readouterr().out)["description"]
    assert (description["continues"], description["warm_start"]) == (None, None)
    assert operator.warm_start == template  # type: ignore[union-attr]


def test_a_dry_run_shows_files_of_one_content_where_they_go(
    local: TonyHook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    files = [{"source": str(tmp_path / folder), "name": folder} for folder in ("one", "two")]
    with dag_of(job("true", files=files)) as dag:
        dag.task_dict["train"].dry_run()  # type: ignore[union-attr]
    told = yaml.safe_load(capsys.readouterr().out)
    uris = {resource["name"]: resource["uri"] for resource in told["description"]["resources"]}
    assert set(uris) == {"one/__init__.py", "two/__init__.py"}
    assert len(set(uris.values())) == 1  # they share a place
    assert {told["staged"][str(tmp_path / name)] for name in uris} == set(uris.values())


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


class InAnotherProcess(TooLate):
    """Masks nothing, when it goes on, but what it masks then."""

    def execute_complete(self, context: Any, event: Any) -> Any:
        _secrets_masker().reset_masker()  # type: ignore[no-untyped-call]
        return super().execute_complete(context, event)


def test_secrets_are_masked_by_the_process_that_goes_on_too(local: TonyHook) -> None:
    secrets = {"API_KEY": "{{ 'open' }}-sesame-4711"}
    spec = job('echo "no use of $API_KEY" >&2; exit 3')
    with dag_of(spec, InAnotherProcess, reason="finished", secrets=secrets) as dag:
        done = run(dag)
    assert _secrets_masker().redact("the key is open-sesame-4711") == "the key is ***"
    assert "no use of ***" in str(done.errors["train"])


def test_secrets_that_are_none(local: TonyHook) -> None:
    error = train(job("true"), secrets="{{ x }}").errors["train"]
    assert isinstance(error, TonySpecError)
    assert "secrets: must be a mapping of names to values, not str" in str(error)


def test_what_a_template_leaves_empty_is_not_given(local: TonyHook) -> None:
    """Jinja writes None as text, and a mapping as Python does."""
    over = {"env": {"GONE": None, "YES": True, "TEXT": 'it\'s "q" \\ é\t.\nb'}}
    command = """test -z "$GONE" && test "$YES" = true && printf %s "$TEXT" > $TONY_MODEL_DIR/text"""
    empty: dict[str, Any] = dict.fromkeys(OPTIONAL, "{{ params.nothing }}")
    params = {"nothing": None, "over": over}
    given = {**empty, "overrides": "{{ params.over }}", "allowed_overrides": ["env"]}
    with dag_of(job(command, env={"GONE": "1"}), params=params, **given) as dag:
        done = run(dag)
    assert done.state == "success", done.errors
    assert read_text(local.storage(), f"{done.results['train']['model_dir']}/text") == over["env"]["TEXT"]
    with dag_of(job("true"), params=params, **empty) as dag:
        assert run(dag).state == "success"


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


@pytest.mark.long
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


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.long), True])
def test_execution_timeout_ends_the_application(local: TonyHook, marker: Marker, deferrable: bool) -> None:
    done = train(job(marker.forever), execution_timeout=timedelta(seconds=8), deferrable=deferrable)
    assert isinstance(done.errors["train"], AirflowTaskTimeout)
    assert ended(local)


def test_a_refused_job_has_no_links_and_no_errors_about_them(
    local: TonyHook, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    done = train(job("true") | {"framework": "nonsense"})
    assert isinstance(done.errors["train"], TonySpecError)
    said = "".join((*capfd.readouterr(), caplog.text))
    assert "must be one of" in said
    assert "XCom not found" not in said


@pytest.mark.long
@pytest.mark.parametrize("missing", ["ResourceManager", "NameNode"])
def test_where_nobody_listens_is_told_before_anything_is_begun(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as silent:
        there = f"http://127.0.0.1:{silent.getsockname()[1]}"
        nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
        managers, namenodes = (nowhere, there) if missing == "ResourceManager" else (there, nowhere)
        connection = {"conn_type": "tony", "host": managers, "login": "alice", "extra": {"webhdfs": namenodes}}
        monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
        error = train(job("true")).errors["train"]
    assert f"no {missing} accepts connections: nothing listens on port {nowhere.rpartition(':')[2]}" in str(error)


@pytest.mark.long
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


@pytest.mark.parametrize(
    "reason",
    [
        "deadline",
        pytest.param("queue_timeout", marks=pytest.mark.long),
        pytest.param("finished", marks=pytest.mark.long),
    ],
)
def test_a_success_that_was_seen_too_late_is_a_success(local: TonyHook, reason: str) -> None:
    """No triggerer may have run when the job ended, and the next one finds that its time is over."""
    with dag_of(job("true"), TooLate, reason=reason) as dag:
        done = run(dag)
    assert done.state == "success", done.errors
    assert done.results["train"]["final_status"] == "SUCCEEDED"


def test_a_success_that_an_expired_deferral_hid_is_a_success(local: TonyHook) -> None:
    def act(_: TaskDeferred) -> None:
        until(lambda: ended(local), "the end of the application", DEADLINE)

    with dag_of(job("true"), TrainsWithoutTriggers, how=TriggerFailureReason.TRIGGER_TIMEOUT, act=act) as dag:
        done = run(dag)
    assert done.state == "success", done.errors


def test_a_copy_of_the_task_has_nothing_to_stop(airflow_db: None) -> None:
    with dag_of(job("true")) as dag:
        pass
    assert copy.deepcopy(dag.task_dict["train"]).task_id == "train"


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
    """It has its chain by then, and its files are staged."""
    end_others = SubmissionAttempt.end_others

    def end_others_and_be_killed(attempt: SubmissionAttempt) -> None:
        end_others(attempt)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SubmissionAttempt, "end_others", end_others_and_be_killed)
    error = train(job(marker.forever), on_kill_action=on_kill_action).errors["train"]
    assert isinstance(error, TonyTaskKilled)
    root = Path(local.layout.root.removeprefix("file://"))
    assert not list(root.rglob("application_*")), "neither the store nor the cluster holds anything of it"
    assert not list(root.rglob("chain-0001"))


def test_sigterm_may_keep_the_application(local: TonyHook, marker: Marker) -> None:
    with marker.then(lambda _: os.kill(os.getpid(), signal.SIGTERM)):
        error = train(job(marker.forever), on_kill_action="keep").errors["train"]
    assert isinstance(error, TonyTaskKilled)
    (application_id,) = applications(local)
    application = local.application(application_id)
    assert application is not None
    assert not application.is_final
    local.kill(application_id, "enough")


def test_a_next_try_attaches_to_the_live_application(
    local: TonyHook, tmp_path: Path, once_attached: Callable[[Callable[[], None]], None]
) -> None:
    dates = {"logical_date": MORNING, "run_after": MORNING}
    spec = job(f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
    with dag_of(spec, wait_for_completion=False) as dag:
        first = run(dag, **dates).results["train"]["application_id"]
    once_attached((tmp_path / "go").touch)
    with dag_of(spec) as dag:
        done = run(dag, **dates)
    assert done.results["train"]["application_id"] == first
    assert applications(local) == [first]


def test_a_trigger_that_fails_is_replaced_and_at_last_the_worker_waits(local: TonyHook, tmp_path: Path) -> None:
    spec = job(f"while ! test -e {tmp_path}/go; do sleep 0.1; done")
    deferrals: list[None] = []

    def act(_: TaskDeferred) -> None:
        deferrals.append(None)
        if len(deferrals) > MAX_TRIGGER_FAILURES:
            (tmp_path / "go").touch()

    with dag_of(spec, TrainsWithoutTriggers, how=TriggerFailureReason.TRIGGER_FAILURE, act=act) as dag:
        done = run(dag)
    assert done.state == "success"
    assert len(deferrals) == MAX_TRIGGER_FAILURES + 1
    assert applications(local) == [done.results["train"]["application_id"]]


def test_a_deferral_that_nobody_ended_in_time_ends_the_application(local: TonyHook, marker: Marker) -> None:
    with dag_of(
        job(marker.forever), TrainsWithoutTriggers, how=TriggerFailureReason.TRIGGER_TIMEOUT, act=lambda _: None
    ) as dag:
        done = run(dag)
    assert isinstance(done.errors["train"], AirflowTaskTimeout)
    assert ended(local)


@pytest.mark.parametrize(
    "by", ["try 1 (0198)", pytest.param(None, marks=pytest.mark.long)]
)  # None: by a triggerer of a release that did not say
def test_an_application_killed_on_behalf_of_its_own_try_is_replaced(
    local: TonyHook, tmp_path: Path, once_attached: Callable[[Callable[[], None]], None], by: str | None
) -> None:
    """A task that is cleared while deferred starts again before its old trigger's on_kill ends the application."""
    dates = {"logical_date": MORNING, "run_after": MORNING}
    spec = job(f"mkdir {tmp_path}/first && exec sleep 60; exit 0")
    with dag_of(spec, wait_for_completion=False) as dag:
        first = run(dag, **dates).results["train"]["application_id"]

    def kill() -> None:
        until((tmp_path / "first").exists, "the first application", DEADLINE)
        local.kill(first, str(KillOrder("the deferred task was cleared", by)))

    once_attached(kill)
    with dag_of(spec) as dag:
        done = run(dag, **dates)
    assert done.state == "success"
    assert applications(local) == sorted({first, done.results["train"]["application_id"]})
    assert len(applications(local)) == 2
