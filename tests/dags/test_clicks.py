"""The example DAGs about clicks, on the embedded local cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.taskinstance import TaskInstance
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk.lineage import HookLineageCollector
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.airflow_dags import run, run_again
from tests.dags.examples import FIRST_DAY, current, events, on, states, succeeded
from tests.operators.jobs import applications
from tests.waiting import until
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.base import read_bytes
from tony_provider.runtime.storage.uris import join

# -- day after day ---------------------------------------------------------------------------------------------------


@pytest.mark.long  # `stale-three` in tests/e2e has trainings that begin with the model of the day before
def test_each_day_begins_with_the_model_of_the_day_before(examples: DagBag, hook: TonyHook) -> None:
    daily = examples.dags["clicks_daily"]
    days = [succeeded(run(daily, **on(day))) for day in (0, 1)]
    losses = [done.results["train"]["metrics"]["log_loss"] for done in days]
    assert losses[1] < losses[0]
    published = current(hook, "clicks_daily/models")
    assert published["version"] == 2
    assert published["period_end"] == (FIRST_DAY + timedelta(days=1)).isoformat()
    assert hook.storage().exists(join(published["model_dir"], "clicks.npy"))
    # A backfilled day does not start with a model of a later day, and its model does not become the current version.
    earlier = succeeded(run(daily, **on(-1)))
    assert earlier.results["publish"]["version"] == 3
    assert earlier.results["train"]["metrics"]["log_loss"] > losses[1]
    assert current(hook, "clicks_daily/models") == published
    assert events("clicks_daily_model", days[1]) == [{**published, "current": True}]


def test_a_day_without_a_date(examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """If OpenLineage is in use, Airflow's collector gets the model and the published version."""
    collector = HookLineageCollector()  # type: ignore[no-untyped-call]
    monkeypatch.setattr("tony_provider.publishing.get_hook_lineage_collector", lambda: collector)
    done = succeeded(run(examples.dags["clicks_daily"], logical_date=None, run_conf={"epochs": 1}))
    published = done.results["publish"]
    assert published["period_start"] is None
    assert published["model_dir"] == done.results["train"]["model_dir"]
    assert done.results["train"]["step"] == 1
    names = [
        {dataset.name for each in found if (dataset := translate_airflow_asset(each.asset, each.context)) is not None}
        for found in (collector.collected_assets.inputs, collector.collected_assets.outputs)
    ]
    version = join(hook.layout.root, "clicks_daily/models/versions/1")
    assert names == [{uri.removeprefix("file://")} for uri in (published["model_dir"], version)]


# -- the better one --------------------------------------------------------------------------------------------------


def test_only_a_better_model_is_published(examples: DagBag, hook: TonyHook) -> None:
    challenger = examples.dags["clicks_challenger"]
    first = succeeded(run(challenger, **on(0)))
    assert states(first)["publish"] == "success"
    assert "published_log_loss" not in first.results["evaluate"]["metrics"]
    published = current(hook, "clicks_challenger/models")
    assert events("clicks_challenger_model", first) == [{**published, "current": True}]
    assert set(published["metrics"]) >= {"challenger_log_loss"}

    # One epoch with a tiny learning rate gives a worse model.
    worse = succeeded(run(challenger, logical_date=None, run_conf={"epochs": 1, "learning_rate": 0.0001}))
    assert (states(worse)["publish"], states(worse)["keep"]) == ("skipped", "success")
    measured = worse.results["evaluate"]["metrics"]
    assert measured["challenger_log_loss"] > measured["published_log_loss"]
    assert current(hook, "clicks_challenger/models") == published
    assert events("clicks_challenger_model", worse) == []


@pytest.mark.long
def test_the_evaluation_is_repeated_without_the_training(examples: DagBag, hook: TonyHook) -> None:
    challenger = examples.dags["clicks_challenger"]
    first = succeeded(run(challenger, **on(0)))
    before = applications(hook)
    assert len(before) == 2
    again = succeeded(run_again(challenger, first.run_id, ["evaluate", "compare", "publish", "keep"]))
    assert again.results["train"] == first.results["train"]
    assert len(applications(hook)) == 3
    assert again.results["evaluate"]["application_id"] not in before
    # The model is neither compared with itself nor published twice.
    assert again.results["evaluate"]["metrics"] == first.results["evaluate"]["metrics"]
    assert again.results["publish"] == first.results["publish"]
    assert current(hook, "clicks_challenger/models")["version"] == 1


# -- train, then score -----------------------------------------------------------------------------------------------


def test_every_shard_is_scored_once_and_all_appear_at_once(examples: DagBag, hook: TonyHook) -> None:
    scored = examples.dags["clicks_scored"]
    done = succeeded(run(scored, logical_date=None, run_conf={"shards": 20, "scorers": 3}))
    uri = done.results["write_unseen"]["predictions"]
    names = {each.name for each in hook.storage().list(uri)}
    assert names == {"_SUCCESS", *(f"part-{number:05}.csv" for number in range(20))}
    lines = read_bytes(hook.storage(), join(uri, "part-00007.csv")).decode().split()
    assert lines[0] == "probability"
    assert all(0 < float(line) < 1 for line in lines[1:])
    assert len(lines) == 51
    # Cleared tasks replace the predictions of the day.
    again = succeeded(run_again(scored, done.run_id, ["score"]))
    assert again.results["score"]["application_id"] != done.results["score"]["application_id"]
    assert {each.name for each in hook.storage().list(uri)} == names


# -- with an approval ------------------------------------------------------------------------------------------------


@contextmanager
def answered(dag_id: str, answer: str) -> Iterator[dict[str, Any]]:
    """Answer the question of a run through Airflow's API. At the end, the yielded dictionary has the question."""
    from airflow.api_fastapi.app import create_app

    asked: dict[str, Any] = {}

    def waiting() -> TaskInstance | None:
        with create_session() as session:
            wanted = select(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.state == "awaiting_input")
            return session.scalars(wanted).first()

    def respond() -> None:
        ti = until(waiting, "the question")
        run_url = f"/api/v2/dags/{dag_id}/dagRuns/{ti.run_id}"
        url = f"{run_url}/taskInstances/{ti.task_id}/-1/hitlDetails"
        asked.update(client.get(url).raise_for_status().json())
        client.patch(url, json={"chosen_options": [answer], "params_input": {}}).raise_for_status()

    with TestClient(create_app("core")) as client:
        token = client.get("/auth/token").raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        user = threading.Thread(target=respond)
        user.start()
        yield asked
        user.join()


@pytest.mark.parametrize(
    ("answer", "published"), [("Approve", "success"), pytest.param("Reject", "skipped", marks=pytest.mark.long)]
)
def test_a_user_is_asked_before_the_publication(
    examples: DagBag, hook: TonyHook, monkeypatch: pytest.MonkeyPatch, answer: str, published: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of this test only" * 3)
    approval = examples.dags["clicks_approval"]
    with answered("clicks_approval", answer) as asked:
        done = succeeded(run(approval, logical_date=None, run_conf={"epochs": 1}))
    trained = done.results["train"]
    assert f"| {trained['metrics']['log_loss']:.4f} (chance:" in asked["body"]
    assert trained["model_dir"] in asked["body"]
    assert states(done)["publish"] == published
    if answer == "Approve":
        version = current(hook, "clicks_approval/models")
        assert version["approved_by"]
        assert events("clicks_approval_model", done) == [{**version, "current": True}]
    else:
        assert not hook.storage().exists(join(hook.layout.root, "clicks_approval/models"))
