"""The example DAGs that belong to guides of the documentation, on the embedded local cluster."""

from __future__ import annotations

import copy
import json
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions.mappedoperator import MappedOperator

from tests.airflow_dags import run
from tests.dags.examples import FOLDER, current, events, on, states, succeeded
from tests.kinds.environments import torch_environment
from tests.notifications.mailbox import mailbox
from tests.operators.jobs import applications
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.base import read_bytes
from tony_provider.runtime.storage.uris import join

SPARK = "airflow.providers.apache.spark.operators.spark_submit"


def names(hook: TonyHook, uri: str) -> list[str]:
    return [each.name for each in hook.storage().list(uri)]


def fail_unless(dag: DAG, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program of each mapped training fail at once, unless a condition of the shell holds."""
    train = dag.get_task("train")
    assert isinstance(train, MappedOperator)
    job = train.partial_kwargs["job"]
    worker = job["tasks"]["worker"]
    failing = {"worker": {**worker, "command": f"{condition} && exec {worker['command']}"}}
    monkeypatch.setitem(train.partial_kwargs, "job", {**job, "tasks": failing, "restart": {"budget": 0}})
    monkeypatch.setitem(train.partial_kwargs, "retries", 0)


# -- search ----------------------------------------------------------------------------------------------------------


def test_the_best_candidate_is_published(examples: DagBag, hook: TonyHook) -> None:
    conf = {"rates": [0.0001, 0.1], "batches": [8]}
    done = succeeded(run(examples.dags["search"], logical_date=None, run_conf=conf))
    published = current(hook, "search/models")
    assert published["metrics"]["rate"] == 0.1
    assert published["application_id"] == done.results["best"]["application_id"]
    assert names(hook, published["model_dir"]) == ["model.json"]
    assert len(applications(hook)) == 2
    assert events("search_model", done) == [{**published, "current": True}]


@pytest.mark.long
def test_a_failed_candidate_is_left_out(examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    search = examples.dags["search"]
    fail_unless(search, "test $RATE = 0.01", monkeypatch)
    succeeded(run(search, logical_date=None, run_conf={"rates": [0.1, 0.01], "batches": [8]}))
    assert current(hook, "search/models")["metrics"]["rate"] == 0.01


# -- one_model_per_country -------------------------------------------------------------------------------------------


def test_the_model_of_each_country_is_published(examples: DagBag, hook: TonyHook) -> None:
    done = succeeded(run(examples.dags["one_model_per_country"], **on(0), run_conf={"countries": ["de", "fr"]}))
    german, french = (current(hook, f"one_model_per_country/models/{country}") for country in ("de", "fr"))
    assert (german["version"], french["version"]) == (1, 1)
    assert german["run_id"] == french["run_id"] == done.run_id
    assert sorted([german["application_id"], french["application_id"]]) == applications(hook)
    weights = [
        json.loads(read_bytes(hook.storage(), join(each["model_dir"], "model.json"))) for each in (german, french)
    ]
    assert weights[0] != weights[1]


@pytest.mark.long
def test_other_countries_are_published_if_one_fails(
    examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    countries = examples.dags["one_model_per_country"]
    fail_unless(countries, "test {{ task.checkpoint_key }} != de", monkeypatch)
    done = run(countries, **on(0), run_conf={"countries": ["de", "fr", "nl"]})
    assert (done.state, states(done)["all_trained"]) == ("failed", "upstream_failed")
    assert names(hook, join(hook.layout.root, "one_model_per_country/models")) == ["fr", "nl"]


# -- spark_then_train ------------------------------------------------------------------------------------------------


def test_a_training_reads_the_table_of_a_simulated_spark_task(examples: DagBag, hook: TonyHook) -> None:
    assert "simulates" in str(examples.dags["spark_then_train"].doc_md)
    done = succeeded(run(examples.dags["spark_then_train"], **on(0), run_conf={"epochs": 2}))
    assert done.results["table"] == join(hook.layout.root, "spark_then_train/features/day=2026-01-05")
    assert names(hook, done.results["table"]) == ["_SUCCESS", *(f"part-{number:05}.json" for number in range(4))]
    trained = done.results["train"]
    assert (trained["step"], trained["total_steps"]) == (2, 2)
    assert trained["metrics"]["loss"] < 0.02


def test_with_a_stub_of_the_spark_provider_a_spark_task_writes_the_table(
    airflow_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SparkSubmitOperator(BaseOperator):
        template_fields = ("application_args",)

        def __init__(self, *, application: str, application_args: list[Any], **arguments: Any) -> None:
            super().__init__(**arguments)
            self.application = application
            self.application_args = application_args

    module = ModuleType(SPARK)
    module.SparkSubmitOperator = SparkSubmitOperator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, SPARK, module)
    bag = DagBag(dag_folder=str(FOLDER / "spark_then_train.py"))
    assert not bag.import_errors
    dag = bag.dags["spark_then_train"]
    features: Any = dag.get_task("features")
    assert isinstance(features, SparkSubmitOperator)
    assert features.upstream_task_ids == {"table"}
    assert features.downstream_task_ids == {"train"}
    program = Path(features.application)
    compile(program.read_text(), program.name, "exec")
    assert [argument for argument in features.application_args[::2] if argument not in program.read_text()] == []


# -- alert_on_failure ------------------------------------------------------------------------------------------------


def test_a_mail_is_sent_for_each_failed_try(examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda *_: "localhost")  # smtplib calls it, and a name server may be slow
    dag = examples.dags["alert_on_failure"]
    monkeypatch.setattr(dag.get_task("train"), "retry_delay", timedelta(0))
    with mailbox() as box:
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com"}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        failed = run(dag, **on(0))
        assert succeeded(run(dag, **on(1), run_conf={"rows": 5})).results["train"] == {"rows": 5}
    assert failed.state == "failed"
    title = "alert_on_failure.train of 2026-01-05 failed"
    subjects = [str(mail["Subject"]) for mail in box.mails]
    assert len(subjects) == 2
    assert [subject for subject in subjects if not subject.startswith(title)] == []
    for mail in box.mails:
        html = mail.get_body().get_content()  # type: ignore[attr-defined]
        assert "exit code 1" in html
        assert "the table clicks has no rows" in html


@pytest.mark.long
def test_without_a_mail_server_the_training_fails_with_the_same_error(
    examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection smtp_default does not exist."""
    dag = examples.dags["alert_on_failure"]
    monkeypatch.setattr(dag.get_task("train"), "retry_delay", timedelta(0))
    failed = run(dag, **on(2), run_conf={"rows": 0})  # Airflow keeps the parameters of the last test of the same DAG
    assert states(failed) == {"train": "failed"}
    assert "the table clicks has no rows" in str(failed.errors["train"])


# -- pytorch_ddp_daily -----------------------------------------------------------------------------------------------


def test_the_job_of_the_pytorch_example_is_valid(examples: DagBag) -> None:
    task = copy.copy(examples.dags["pytorch_ddp_daily"].get_task("train"))
    assert isinstance(task, TonyTrainOperator)
    context = {
        "params": {"workers": 3, "epochs": 4},
        "ti": SimpleNamespace(xcom_pull=lambda task_id: f"file:///{task_id}.csv"),
        "dag_run": SimpleNamespace(run_after=datetime(2026, 1, 5, tzinfo=UTC)),
    }
    task.render_template_fields(cast(Any, context))
    job = parse_job(task.job)
    worker = job.tasks["worker"]
    assert (job.framework, worker.instances) == ("pytorch", 3)
    assert worker.command == "python train.py --data clicks.csv --epochs 4"
    program = FOLDER / job.files[0].source
    compile(program.read_text(), program.name, "exec")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_trains_in_two_containers(examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    daily = examples.dags["pytorch_ddp_daily"]
    train = daily.get_task("train")
    assert isinstance(train, TonyTrainOperator)
    assert isinstance(train.job, dict)
    monkeypatch.setitem(train.job, "python_env", str(torch_environment()))
    done = succeeded(run(daily, **on(0), run_conf={"epochs": 3}))
    trained = done.results["train"]
    assert (trained["step"], trained["total_steps"]) == (3, 3)
    assert trained["metrics"]["loss"] < 5  # the variance of the labels
    assert names(hook, trained["model_dir"]) == ["model.pt"]
    assert trained["checkpoint_step"] == 3
