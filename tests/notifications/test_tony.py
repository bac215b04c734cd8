"""TonyNotifier in real runs of tasks and DAGs, with real notifiers beneath it."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from airflow.callbacks.callback_requests import DagCallbackRequest, DagRunContext
from airflow.dag_processing import processor
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, task
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow_dags import run
from tests.airflow_home import DAGS
from tests.notifications.mailbox import mailbox
from tests.notifications.recording import RecordingNotifier
from tests.operators.jobs import DAG_ID, dag_of, job
from tony_provider.hooks.tony import TonyHook
from tony_provider.notifications.tony import TonyNotifier
from tony_provider.operators.tony import TonyTrainOperator

MONDAY = datetime(1999, 1, 4, tzinfo=UTC)  # before what other tests train in the same Airflow
TUESDAY = MONDAY + timedelta(days=1)
FAILING = """
echo '{"step": 3, "total_steps": 9, "loss": 0.25, "<b>accuracy</b>": 0.5}' >> $TONY_METRICS_FILE
echo "the key is $KEY"; echo 'the disk is <full>'; exit 3
"""
SUCCEEDING = """echo '{"step": 9, "loss": %s}' >> $TONY_METRICS_FILE"""


@pytest.fixture
def recording() -> RecordingNotifier:
    return RecordingNotifier()


def on(date: datetime) -> dict[str, Any]:
    return {"logical_date": date, "run_after": date}


def trained(command: str, date: datetime, **arguments: Any) -> str:
    with dag_of(job(command, restart={"budget": 0}), **arguments) as dag:
        return run(dag, **on(date)).state


def test_a_failure_is_told_by_mail_with_its_cause_and_its_last_lines(
    local: TonyHook, recording: RecordingNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda *_: "localhost")  # asked for by smtplib; a name server may be slow
    with mailbox() as box:
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com"}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": box.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        mail = SmtpNotifier(to="team@example.com", subject="{{ tony.title }}", html_content="{{ tony.html }}")
        state = trained(
            FAILING,
            MONDAY,
            secrets={"KEY": "in-no-message"},
            on_failure_callback=[TonyNotifier(mail), TonyNotifier(recording)],
        )
    assert state == "failed"
    (failed,) = recording.news
    assert recording.told == [f"{DAG_ID}.train of 1999-01-04 failed"]
    assert (failed.verdict, failed.tail_of, failed.step, failed.total_steps) == ("failed", "worker:0", 3, 9)
    assert "worker:0" in failed.cause
    assert "exit code 3" in failed.cause
    assert "\n" not in failed.cause
    assert failed.tail.splitlines()[-2:] == [f"the key is {'*' * len('in-no-message')}", "the disk is <full>"]
    assert failed.metrics == {"loss": 0.25, "<b>accuracy</b>": 0.5}
    assert failed.links["Task in Airflow"].endswith("/tasks/train?try_number=1")
    assert "in-no-message" not in failed.message
    assert failed.missing == []

    (sent,) = box.mails
    assert sent["Subject"] == failed.title
    html = sent.get_body().get_content()  # type: ignore[attr-defined]
    assert "the disk is &lt;full&gt;" in html
    assert "<td>&lt;b&gt;accuracy&lt;/b&gt;</td><td>0.5</td><td>before: not known</td>" in html
    assert "in-no-message" not in html


@pytest.mark.long
def test_each_try_is_told_and_the_end_of_the_run(local: TonyHook, recording: RecordingNotifier) -> None:
    """Deferred, and so in another process of the task than the one that has started the job."""
    tell: Any = {"on_retry_callback": TonyNotifier(recording), "on_failure_callback": TonyNotifier(recording)}
    spec = job(FAILING, restart={"budget": 0})
    with dag_of(spec, retries=1, retry_delay=timedelta(0), deferrable=True, secrets={"KEY": "none"}, **tell) as dag:
        run_id = run(dag, **on(MONDAY)).run_id
    assert recording.told == [
        f"{DAG_ID}.train of 1999-01-04 failed (try 1 of 2; will be retried)",
        f"{DAG_ID}.train of 1999-01-04 failed (try 2 of 2)",
    ]
    first, second = recording.news
    assert first.application_id != second.application_id
    assert second.tail.splitlines()[-1] == "the disk is <full>"
    recording.told.clear()

    dag.on_failure_callback = TonyNotifier(recording)
    call_as_the_dag_processor_does(dag, run_id)
    assert recording.told == [f"{DAG_ID} of 1999-01-04 failed"]
    of_run = recording.news[-1]
    assert (of_run.task_id, of_run.application_id, of_run.cause) == ("train", second.application_id, second.cause)
    assert of_run.tail == second.tail


def call_as_the_dag_processor_does(dag: DAG, run_id: str) -> None:
    """With a request that has come from the scheduler as JSON."""
    with create_session() as session:
        which = select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == run_id)
        dag_run = session.scalars(which).one()
        (failed,) = dag_run.get_task_instances(session=session)
        request = DagCallbackRequest(
            filepath="clicks.py",
            dag_id=dag.dag_id,
            run_id=run_id,
            bundle_name="dags-folder",
            bundle_version=None,
            context_from_server=DagRunContext(dag_run=dag_run, last_ti=failed),
            is_failure_callback=True,
            msg="task_failure",
        )
        received = DagCallbackRequest.from_json(request.to_json())
    bag = DagBag(dag_folder=str(DAGS))
    bag.dags[dag.dag_id] = dag
    processor._execute_dag_callbacks(bag, received, structlog.get_logger())


EXPRESSION = "{{ 'rendered ' ~ 'twice' }}"


@pytest.mark.parametrize("mapped", [False, True])
def test_values_of_a_task_are_not_rendered_once_more(
    local: TonyHook, recording: RecordingNotifier, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    """Seen: a template in a form's value was rendered in the worker, with all of Airflow's context."""
    keys: list[Any] = []
    identity = TonyHook.identity

    def remembered(self: TonyHook, **which: Any) -> Any:
        keys.append(which)
        return identity(self, **which)

    monkeypatch.setattr(TonyHook, "identity", remembered)
    arguments: dict[str, Any] = {
        "task_id": "train",
        "job": job("exit 3", restart={"budget": 0}),
        "poll_interval": 0.5,
        "on_failure_callback": TonyNotifier(recording),
    }
    with DAG("rendered_once", schedule=None, params={"key": EXPRESSION}) as dag:
        if mapped:

            @task
            def regions() -> list[str]:
                return [EXPRESSION]

            TonyTrainOperator.partial(**arguments).expand(checkpoint_key=regions())
        else:
            TonyTrainOperator(**arguments, checkpoint_key="{{ params.key }}")
    assert run(dag).state == "failed"
    assert [each.verdict for each in recording.news] == ["failed"]
    assert {which.get("checkpoint_key") for which in keys} == {EXPRESSION}


@pytest.mark.long
def test_metrics_are_compared_with_the_last_run_that_succeeded(local: TonyHook, recording: RecordingNotifier) -> None:
    assert trained(SUCCEEDING % "0.5", MONDAY, on_success_callback=TonyNotifier(recording)) == "success"
    assert trained(SUCCEEDING % "0.25", TUESDAY, on_success_callback=TonyNotifier(recording)) == "success"
    first, second = recording.news
    assert (first.verdict, first.cause, first.tail) == ("succeeded", "", "")
    assert (first.former_metrics, first.missing) == (None, [])
    assert (second.metrics, second.former_metrics) == ({"loss": 0.25}, {"loss": 0.5})
    assert second.former_run.startswith("manual__1999-01-04")
    assert "loss: 0.25, before: 0.5" in second.message
    assert second.title == f"{DAG_ID}.train of 1999-01-05 succeeded"
