"""The links of a training's task: what is pushed, and what is left once its application has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.operators.jobs import Marker, job, train
from tests.waiting import until
from tony_provider.cluster.interface import Pages
from tony_provider.hooks.tony import TonyHook
from tony_provider.links.job_links import (
    LINKS,
    FilesLink,
    JobPageLink,
    TensorBoardLink,
    TrainingJobLink,
    YarnApplicationLink,
    portal_page,
    push_links,
    withdraw_links,
)

ID = "application_1700000000000_0001"


class TaskInstance(dict[str, str]):
    """Keeps what is pushed."""

    def xcom_push(self, key: str, value: str) -> None:
        self[key] = value


def test_the_pages_of_a_master_go_with_it() -> None:
    ti = TaskInstance()
    pages = Pages("http://rm/cluster/app/1", "http://rm/proxy/1/", "http://nn/explorer.html#/1")
    push_links(cast(Any, ti), ID, pages, tensorboard=True)
    assert set(ti) == {link.xcom_key for link in LINKS}
    assert all(ti.values())
    withdraw_links(cast(Any, ti))
    left = [link.xcom_key for link in (TrainingJobLink, YarnApplicationLink, FilesLink)]
    assert [key for key, value in ti.items() if value] == left
    assert (ti[JobPageLink.xcom_key], ti[TensorBoardLink.xcom_key]) == ("", "")


@pytest.mark.parametrize(
    ("base", "page"),
    [
        ("https://airflow.example:8443/below/", f"https://airflow.example:8443/below/plugin/training-jobs?job={ID}"),
        ("http://localhost:8080", f"http://localhost:8080/plugin/training-jobs?job={ID}"),
        ("/", f"/plugin/training-jobs?job={ID}"),
    ],
)
def test_the_portal_is_where_airflow_says_that_it_is(monkeypatch: pytest.MonkeyPatch, base: str, page: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    assert portal_page(ID) == page


def test_a_running_task_has_its_result_so_far(local: TonyHook, marker: Marker) -> None:
    """Tasks downstream get it if a user marks the running task as success, and would otherwise get None."""
    found: list[Any] = []

    def results(application_id: str) -> list[Any]:
        with create_session() as session:
            rows = session.scalars(select(XComModel).where(XComModel.key == "return_value"))
            values = [XComModel.deserialize_value(row) for row in rows if row.task_id == "train"]
        return [value for value in values if isinstance(value, dict) and value.get("application_id") == application_id]

    def look(application_id: str) -> None:
        found.extend(until(lambda: results(application_id), "its result so far"))
        local.kill(application_id, "seen")

    with marker.then(look):
        done = train(job(marker.forever))
    (so_far,) = found
    assert so_far["application_id"] in str(done.errors["train"])
    assert so_far["application_dir"].endswith(f"/applications/{so_far['application_id']}")
    assert (so_far["model_dir"], so_far["final_status"]) == (None, None)
    assert results(so_far["application_id"]) == []  # mapped tasks downstream get the results of successful tasks only


def test_a_job_that_has_ended_leads_to_its_page_inside_airflow(local: TonyHook) -> None:
    """Also of this machine's own cluster, which has no other pages."""
    done = train(job("true"))
    ti = done.task_instances["train"]
    links = {type(link): ti.xcom_pull(task_ids="train", key=link.xcom_key) for link in LINKS}
    page = portal_page(done.results["train"]["application_id"])
    assert links == {**dict.fromkeys(links, ""), TrainingJobLink: page}
