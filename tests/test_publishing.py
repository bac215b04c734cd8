"""Publication of models, on the store of the local backend. The example DAGs use it in real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tony_provider import publishing
from tony_provider.cluster.records.summary import newest_model_before
from tony_provider.hooks.tony import TonyHook
from tony_provider.publishing import publish_model
from tony_provider.runtime.storage.base import read_bytes
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.uris import join

MODELS = "clicks/models"


@pytest.fixture
def store(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TonyHook]:
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    with TonyHook() as hook:
        yield hook


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The context of a task without outlets, in the run of 5 January."""
    found: dict[str, Any] = {"dag_run": run_of(5), "task": SimpleNamespace(outlets=[]), "outlet_events": {}}
    monkeypatch.setattr(publishing, "get_current_context", lambda: found)
    return found


def run_of(day: int) -> Any:
    moment = datetime(2026, 1, day, tzinfo=UTC)
    return SimpleNamespace(
        run_id=f"run-{day}", data_interval_start=moment, data_interval_end=moment, logical_date=moment, run_after=moment
    )


def trained(store: TonyHook, number: int = 1, **metrics: float) -> dict[str, Any]:
    """Return the result of a training, with a model on the store."""
    application = f"application_1700000000000_{number:04}"
    model_dir = join(store.layout.root, "jobs/train", application, "model")
    store.storage().write(join(model_dir, "weights"), b"weights")
    return {"application_id": application, "model_dir": model_dir, "metrics": metrics}


def read(store: TonyHook, name: str) -> Any:
    return json.loads(read_bytes(store.storage(), join(store.layout.root, MODELS, name)))


def test_a_model_is_published_without_a_copy(store: TonyHook, context: dict[str, Any]) -> None:
    result = trained(store, loss=0.5)
    version = publish_model(MODELS, result, {"metrics": {"accuracy": 0.9}}, approved_by="alice")
    assert version == {
        "metrics": {"accuracy": 0.9},
        "period_start": "2026-01-05T00:00:00+00:00",
        "period_end": "2026-01-05T00:00:00+00:00",
        "run_id": "run-5",
        "application_id": result["application_id"],
        "model_dir": result["model_dir"],
        "approved_by": "alice",
        "version": 1,
    }
    assert read(store, "versions/1/version.json") == read(store, "current.json") == version
    assert [each.name for each in store.storage().list(join(store.layout.root, MODELS, "versions/1"))] == [
        "version.json"
    ]


def test_a_retry_publishes_the_same_version_with_new_metrics(store: TonyHook, context: dict[str, Any]) -> None:
    publish_model(MODELS, trained(store, 1, loss=0.5))
    second = trained(store, 2, loss=0.4)
    publish_model(MODELS, second)
    again = publish_model(MODELS, second, {"metrics": {"loss": 0.3}})
    assert (again["version"], again["metrics"]) == (2, {"loss": 0.3})
    assert read(store, "versions/2/version.json") == read(store, "current.json") == again
    assert len(store.storage().list(join(store.layout.root, MODELS, "versions"))) == 2


def test_a_model_of_an_earlier_period_does_not_become_the_current_version(
    store: TonyHook, context: dict[str, Any]
) -> None:
    newest = publish_model(MODELS, trained(store, 1))
    context["dag_run"] = run_of(3)
    earlier = publish_model(MODELS, trained(store, 2))
    assert earlier["version"] == 2
    assert read(store, "current.json") == newest
    models = join(store.layout.root, MODELS)
    assert newest_model_before(store.storage(), models, datetime(2026, 1, 5, tzinfo=UTC)) == earlier["model_dir"]
    context["dag_run"] = run_of(5)
    assert publish_model(MODELS, trained(store, 3)) == read(store, "current.json")


def test_concurrent_tasks_get_different_numbers(store: TonyHook, context: dict[str, Any]) -> None:
    results = [trained(store, number) for number in range(1, 9)]
    with ThreadPoolExecutor(len(results)) as pool:
        versions = list(pool.map(lambda result: publish_model(MODELS, result), results))
    assert sorted(version["version"] for version in versions) == list(range(1, 9))
    for version in versions:
        assert read(store, f"versions/{version['version']}/version.json") == version


def test_versions_of_other_programs_are_kept(store: TonyHook, context: dict[str, Any]) -> None:
    other = {"model_dir": trained(store, 1)["model_dir"], "period_end": "2026-01-04"}
    uri = join(store.layout.root, MODELS, "versions/best/version.json")
    store.storage().write(uri, json.dumps(other).encode())
    store.storage().make_directories(join(store.layout.root, MODELS, "versions/7"))
    assert publish_model(MODELS, trained(store, 2))["version"] == 1
    assert read(store, "versions/best/version.json") == other


def test_models_may_be_a_uri(store: TonyHook, context: dict[str, Any]) -> None:
    version = publish_model(join(store.layout.root, MODELS), trained(store))
    assert read(store, "current.json") == version


def test_each_outlet_gets_an_event(store: TonyHook, context: dict[str, Any]) -> None:
    context["task"].outlets.append("asset")
    context["outlet_events"]["asset"] = SimpleNamespace(extra={})
    version = publish_model(MODELS, trained(store))
    assert context["outlet_events"]["asset"].extra == {**version, "current": True}


def test_the_event_of_an_earlier_period_is_not_current(store: TonyHook, context: dict[str, Any]) -> None:
    publish_model(MODELS, trained(store, 1))
    context["task"].outlets.append("asset")
    context["outlet_events"]["asset"] = SimpleNamespace(extra={})
    context["dag_run"] = run_of(3)
    earlier = publish_model(MODELS, trained(store, 2))
    assert context["outlet_events"]["asset"].extra == {**earlier, "current": False}


@pytest.mark.parametrize("missing", [{"model_dir": None}, {}])
def test_a_training_without_a_model_is_refused(
    store: TonyHook, context: dict[str, Any], missing: dict[str, Any]
) -> None:
    """Airflow 3.0 has no XComs without a value, so the key may be missing."""
    words = "application_1_0001 has left no model to publish: its program must write files to TONY_MODEL_DIR"
    with pytest.raises(ValueError, match=words):
        publish_model(MODELS, {"application_id": "application_1_0001", "metrics": {}, **missing})
    assert not store.storage().exists(join(store.layout.root, MODELS))


def test_a_removed_model_is_refused(store: TonyHook, context: dict[str, Any]) -> None:
    result = trained(store)
    store.storage().remove(result["model_dir"], recursive=True)
    with pytest.raises(StorageNotFound):
        publish_model(MODELS, result)
    assert not store.storage().exists(join(store.layout.root, MODELS))


def test_an_invalid_version_is_named(store: TonyHook, context: dict[str, Any]) -> None:
    uri = join(store.layout.root, MODELS, "versions/1/version.json")
    store.storage().write(uri, b"{}")
    with pytest.raises(ValueError, match=uri):
        publish_model(MODELS, trained(store))
