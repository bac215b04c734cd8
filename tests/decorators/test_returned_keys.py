"""What crosses between @task.tony and other tasks of a DAG as XComs: keys that it returns, and values that it takes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from airflow.sdk import DAG, task
from airflow.sdk.api.client import Client

from tests.airflow_dags import Run, run
from tests.operators.trainings import ONCE
from tony_provider.decorators.function_call import check_result_keys
from tony_provider.decorators.task_tony import OWN_KEYS, RESULT_KEY
from tony_provider.exceptions import TonyResultRefused
from tony_provider.hooks.tony import TonyHook

JOB = {"framework": "standalone", "am": {"memory": "256MiB"}, "tasks": {"worker": {"memory": "256MiB"}}, **ONCE}
ELSEWHERE = "../../../another_dag/manual/train/return_value"


def echo(value: Any) -> Any:
    return value


def returned(value: Any, **arguments: Any) -> Run:
    """Run a function that returns a value."""
    with DAG("returned_keys", schedule=None) as dag:
        task.tony(job=JOB, poll_interval=0.5, **arguments)(echo)(value)
    return run(dag)


KEYS = [
    RESULT_KEY,  # in place of what the provider has checked
    "tony_link_job",  # the address of a link of the task in Airflow's pages
    ELSEWHERE,  # an XCom of another DAG
    "../../../../dag-runs/another_dag/mine",  # a run of another DAG, with a conf
    *("a/../b", "a/..", "..", "/a", "a/", "a//b", "a?b", "a#b", "%2e%2e/a", "a\\b", "a\nb", ""),
]


@pytest.mark.parametrize("key", [RESULT_KEY, ELSEWHERE])
def test_a_key_is_an_xcom_of_the_task_and_nothing_else(local: TonyHook, key: str) -> None:
    """Seen: code in a job replaced the task's own XComs, and reached Airflow's API for other DAGs."""
    done = returned({"loss": 0.5, key: {"model_dir": "/etc", "conf": {}}}, multiple_outputs=True)
    error = done.errors["echo"]
    assert isinstance(error, TonyResultRefused)
    assert repr(key) in str(error)
    ti = done.task_instances["echo"]
    assert ti.xcom_pull(task_ids="echo", key="loss") is None
    assert ti.xcom_pull(task_ids="echo", key=RESULT_KEY)["final_status"] == "SUCCEEDED"


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_leads_elsewhere_is_refused(key: str) -> None:
    with pytest.raises(TonyResultRefused):
        check_result_keys([key], OWN_KEYS)


@pytest.mark.parametrize("key", ["..", "a/../b", ELSEWHERE])
def test_the_keys_that_are_refused_lead_elsewhere_in_airflows_client(key: str) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(201, json={})

    transport = httpx.MockTransport(answer)
    Client(base_url="http://localhost/", token="", transport=transport).xcoms.set("d", "r", "t", key, 1)
    assert asked[0] != f"/xcoms/d/r/t/{key}"


def test_other_keys_are_xcoms(local: TonyHook) -> None:
    keys = ["loss", "val/loss", "top-5", "F1 score", "v1.2", "loss@2", "a:b"]
    done = returned(dict.fromkeys(keys, 1), multiple_outputs=True)
    assert done.errors == {}
    ti = done.task_instances["echo"]
    assert [ti.xcom_pull(task_ids="echo", key=key) for key in keys] == [1] * len(keys)


def test_any_key_may_be_in_a_value(local: TonyHook) -> None:
    value = {RESULT_KEY: 1, ELSEWHERE: 2}
    assert returned(value).results["echo"] == value


def test_arguments_that_another_task_returned_are_no_templates(local: TonyHook) -> None:
    """Seen: Airflow rendered them for ``expand_kwargs`` of what a task returned."""
    with DAG("mapped_arguments", schedule=None) as dag:

        @task
        def plan() -> list[dict[str, Any]]:
            return [{"value": {"a": "{{ 1 + 1 }}"}}]

        task.tony(job=JOB, poll_interval=0.5)(echo).expand_kwargs(plan())
    done = run(dag)
    assert done.state == "success"
    (instance,) = (ti for ti in done.task_instances.values() if ti.task_id == "echo")
    assert instance.xcom_pull(task_ids="echo", map_indexes=0) == {"a": "{{ 1 + 1 }}"}
