"""Real trainings, and what others get to know of them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.operators.jobs import job
from tests.operators.telemetry.fake_mlflow import Info, Run, Server
from tests.operators.telemetry.mlflow_runs import ADDRESS, Memory
from tests.operators.telemetry.tries import RUN
from tests.operators.trainings import Training
from tony_provider.exceptions import TonyJobFailed, TonySpecError
from tony_provider.hooks import mlflow_server
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.mlflow_server import TRAINING_TAG, MlflowServer, OpenMlflowRun
from tony_provider.operators import telemetry
from tony_provider.operators import training_try as operators_training
from tony_provider.operators.mlflow_run import STATE_KEY, MlflowOptions
from tony_provider.operators.outcome import Outcome, RemainingOutput
from tony_provider.operators.telemetry import Telemetry
from tony_provider.runtime.common.codec import from_plain
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.triggers.tony import DeferredJob, TonyJobTrigger

SAYS_WHAT_IT_FINDS = """
echo '{"step": 3, "total_steps": 3, "loss": 0.25}' >> $TONY_METRICS_FILE
printf '{"run": "%s", "uri": "%s", "token": "%s", "trace": "%s"}' \\
    "$MLFLOW_RUN_ID" "$MLFLOW_TRACKING_URI" "$MLFLOW_TRACKING_TOKEN" "$TRACEPARENT" > $TONY_RESULT_FILE
"""


def test_all_are_told_of_a_training_that_was_deferred(
    training: Training, mlflow: Server, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    deferred: list[DeferredJob] = []
    masked: set[str] = set()
    tell_output = Outcome.log_output

    def tell(outcome: Outcome, status: JobStatus, rest: RemainingOutput) -> None:
        masked.update(rest.secrets)
        tell_output(outcome, status, rest)

    monkeypatch.setattr(Outcome, "log_output", tell)

    def trigger(**arguments: Any) -> TonyJobTrigger:
        deferred.append(from_plain(arguments["job"], DeferredJob))
        return TonyJobTrigger(**arguments)

    monkeypatch.setattr(operators_training, "TonyJobTrigger", trigger)

    class Backend:
        @staticmethod
        def timing(name: str, took: object, *, tags: object) -> None:
            told.append(name)

        @staticmethod
        def incr(name: str, count: int = 1, *, tags: object) -> None:
            told.append(name)

    monkeypatch.setattr(telemetry, "Stats", Backend)
    with trace.get_tracer("airflow").start_as_current_span("worker.train") as task:
        done = training.again(
            job(SAYS_WHAT_IT_FINDS), deferrable=True, mlflow={"conn_id": "mlflow_default", "experiment": "digits"}
        )
    assert done.state == "success", done.errors
    (run,) = mlflow.runs
    found = done.results["train"]["returned"]
    assert (found["run"], found["uri"]) == (run.info.run_id, ADDRESS)
    assert found["token"] == "a-token"
    assert found["trace"].split("-")[1] == f"{task.get_span_context().trace_id:032x}"
    assert list(mlflow.experiments) == ["digits"]
    assert run.info.status == "FINISHED"
    assert {each.key: each.value for each in run.data.points}["loss"] == 0.25
    assert {"tony.job.total", "tony.job.succeeded"} <= set(told)
    assert told.count("tony.job.succeeded") == 1
    names = [span.name for span in spans.get_finished_spans()]
    assert {"tony.waiting", "tony.localisation", "tony.generation", "tony.end"} <= set(names)
    assert names.count("tony.training") == 1
    known = OpenMlflowRun("mlflow_default", run.info.run_id, training.identity.name)
    assert [each.mlflow for each in deferred] == [known]
    assert masked == {"a-token"}
    # The token is in the credentials alone.
    assert training.description(done).environment.keys() == {"TRACEPARENT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"}


def test_a_failure_is_the_same_when_nobody_can_be_told(
    training: Training, mlflow: Server, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def history(*_: Any) -> Any:
        raise RuntimeError("no history")

    mlflow.is_away = True
    monkeypatch.setattr(telemetry, "Stats", None)
    monkeypatch.setattr(TonyJob, "history", history)
    with trace.get_tracer("airflow").start_as_current_span("worker.train"):
        done = training.again(job("exit 3", restart={"budget": 0}), mlflow="mlflow_default")
    error = done.errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.failure is not None
    assert error.failure.exit_code == 3
    assert training.said("Cannot start MLflow's run of this training: MlflowException: Max retries")
    assert training.said("MLflow did not receive the result of this try: MlflowException")
    assert training.said("Airflow's metrics did not receive the result of this try: AttributeError")
    assert training.said("The trace of this task lacks the training's spans: RuntimeError: no history")


@pytest.mark.parametrize("is_away", [False, True])
def test_a_try_that_is_killed_closes_the_run_beside(
    mlflow: Server, caplog: pytest.LogCaptureFixture, is_away: bool
) -> None:
    """Airflow gives its process some seconds only, and the job may take longer to end."""
    training = SimpleNamespace(name="a training")
    run = Run(Info("run0", "1", "train"))
    run.data.tags[TRAINING_TAG] = training.name
    mlflow.runs.append(run)
    mlflow.is_away = is_away
    store = Memory()
    store.set(STATE_KEY, "run0")
    task = cast(Any, SimpleNamespace(mlflow="mlflow_default", log=logging.getLogger(__name__)))
    Telemetry(task, RUN, lambda: cast(Any, training), store).close_mlflow_run_in_background(
        "application_1_0001", "its worker was ended"
    )
    mlflow_server._closing.submit(bool).result(30)  # after what it does before
    if is_away:
        assert "MLflow's run run0 of application_1_0001 stays open" in caplog.text
    else:
        assert (run.info.status, run.data.tags["tony.reason"]) == ("KILLED", "its worker was ended")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, r"mlflow: should be the id of a connection, or a mapping with a conn_id, not 5"),
        ({"conn_id": "m", "experimnet": "x"}, r"mlflow: 'experimnet' is not known.*experiment.*conn_id, experiment"),
        ({"conn_id": 5}, r"mlflow\.conn_id: should be text, not 5"),
        ({"experiment": "x"}, r"mlflow\.conn_id: is needed"),
    ],
)
def test_arguments_that_are_wrong(given: Any, message: str) -> None:
    with pytest.raises(TonySpecError, match=message):
        MlflowOptions.of(given)


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_nothing_is_asked_for(nothing: Any) -> None:
    assert MlflowOptions.of(nothing) is None


@pytest.mark.parametrize(
    ("connection", "uri", "credentials"),
    [
        ('{"conn_type": "http", "host": "ml.example.com"}', "http://ml.example.com", {}),
        ('{"conn_type": "http", "host": "ml", "schema": "https", "port": 443}', "https://ml:443", {}),
        (
            '{"conn_type": "http", "host": "https://ml", "login": "ann", "password": "pass-word"}',
            "https://ml",
            {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pass-word"},
        ),
        (
            '{"conn_type": "generic", "password": "a-token", "extra": {"tracking_uri": "databricks"}}',
            "databricks",
            {"MLFLOW_TRACKING_TOKEN": "a-token"},
        ),
    ],
)
def test_connections(monkeypatch: pytest.MonkeyPatch, connection: str, uri: str, credentials: dict[str, str]) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ML", connection)
    assert MlflowServer.of_connection("ml") == MlflowServer(uri, credentials)


def test_connections_that_are_wrong(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ML", '{"conn_type": "http"}')
    with pytest.raises(TonySpecError, match="the connection 'ml' has no host"):
        MlflowServer.of_connection("ml")
    with pytest.raises(TonySpecError, match="airflow connections add none_such"):
        MlflowServer.of_connection("none_such")
