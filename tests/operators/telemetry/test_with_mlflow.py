"""The same with MLflow itself, where it is installed: its client, and a store of its own in a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.operators.statuses import ID, status
from tests.operators.telemetry.mlflow_runs import Memory, spec, training_run
from tests.operators.telemetry.tries import START, ended
from tony_provider.cluster.records.summary import Curve, JobSummary
from tony_provider.exceptions import TonyJobFailed

pytest.importorskip("mlflow.store.tracking.sqlalchemy_store", reason="needs mlflow, not only mlflow-skinny")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def client(address: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=address)


def test_a_training_from_its_first_try_to_its_success(address: str) -> None:
    first = training_run(address)
    run_id = first.begin(spec(), {"KEY": "hunter22"})["MLFLOW_RUN_ID"]
    first.end(ended(TonyJobFailed("worker:1 failed", application_id=ID)))
    assert client(address).get_run(run_id).info.status == "FAILED"

    again = training_run(address, Memory())  # Airflow's store has forgotten it
    assert again.begin(spec(env={"RATE": "0.2"}), {})["MLFLOW_RUN_ID"] == run_id
    assert client(address).get_run(run_id).info.status == "RUNNING"
    curve = Curve(metric="accuracy", steps=[10, 40], seconds=[1.0, 2.5], values=["NaN", 0.75])
    summary = JobSummary(application_id=ID, application_dir="", dag_id="", run_id="", task_id="", curves=[curve])
    metrics = {"loss": 0.25, "<i>": math.nan, "up": math.inf}
    again.end(ended(status=status("SUCCEEDED", step=40, metrics=metrics), summary=summary))
    again.end(ended(status=status("SUCCEEDED", step=40, metrics=metrics), summary=summary))

    run = client(address).get_run(run_id)
    assert (run.info.status, run.info.end_time) == ("FINISHED", START + 100_000)
    assert run.data.params["env.RATE"] == "0.1"
    assert run.data.params["tasks.worker.command"] == "python train.py --key ***"
    assert run.data.metrics["loss"] == 0.25
    assert math.isnan(run.data.metrics["_i_"])
    assert run.data.tags["tony.verdict"] == "SUCCEEDED"
    history = client(address).get_metric_history(run_id, "accuracy")
    assert {each.step: each.value for each in history}[40] == 0.75
    assert again.begin(spec(), {})["MLFLOW_RUN_ID"] != run_id


def test_a_server_that_is_away_is_found_to_be_so(unused_address: str) -> None:
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="Max retries exceeded"):
        training_run(unused_address).begin(spec(), {})


@pytest.fixture
def unused_address() -> str:
    return "http://127.0.0.1:1"
