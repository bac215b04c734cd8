"""The example DAGs: they parse, their forms make sense, and they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from tests.airflow_dags import run
from tests.demo.airflow import REPOSITORY
from tests.demo.published import Published
from tony_provider.hooks.tony import TonyHook


@pytest.fixture
def digits_train(examples: DagBag) -> DAG:
    dag: DAG = examples.dags["digits_train"]
    return dag


def test_all_are_found_and_training_code_is_left_alone(examples: DagBag) -> None:
    assert not examples.import_errors
    assert {Path(dag.fileloc).parent for dag in examples.dags.values()} == {REPOSITORY / "dags"}


def test_every_parameter_has_a_title_and_a_section_and_numbers_have_limits(examples: DagBag) -> None:
    for dag in examples.dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            assert param.schema.get("title"), (dag.dag_id, name)
            assert param.schema.get("section"), (dag.dag_id, name)
            assert param.resolve() == dag.params[name]
            if param.schema["type"] in ("integer", "number"):
                assert param.schema.keys() & {"minimum", "exclusiveMinimum"}, (dag.dag_id, name)


def test_every_example_says_what_it_shows(examples: DagBag) -> None:
    page = (REPOSITORY / "docs" / "examples.md").read_text()
    for name, dag in examples.dags.items():
        assert dag.doc_md, name
        assert f"`{name}`" in page


def test_digits_are_read_from_data_to_published_model(digits_train: DAG, hook: TonyHook) -> None:
    """Triggered without a logical date, as by the API; on the embedded local cluster."""
    done = run(digits_train, logical_date=None)
    assert done.state == "success", done.errors
    published = Published.current(hook.storage(), hook.layout.root)
    assert published.accuracy >= 0.95
    assert published.version == 1
    trained = done.results["train"]
    assert trained["application_id"] == published.application_id
    assert trained["step"] == trained["total_steps"] == 15
    assert done.results["publish"]["period_start"] is None


@pytest.mark.long  # TensorFlow starts four times; test_clicks.py has a training that begins with published weights
def test_digits_go_on_from_the_published_model(digits_train: DAG, hook: TonyHook) -> None:
    """One epoch is enough for a network that begins with these weights, and for no other."""
    first = run(digits_train, logical_date=None)
    assert first.state == "success", first.errors
    again = run(digits_train, logical_date=None, run_conf={"warm_start": True, "epochs": 1})
    assert again.state == "success", again.errors
    assert again.results["train"]["step"] == 1
    assert again.results["train"]["resumed_step"] is None
    assert Published.current(hook.storage(), hook.layout.root).version == 2


def test_the_doctor_says_what_a_worker_sees(examples: DagBag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = examples.dags["tony_doctor"]
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path / "tony")}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    done = run(dag, logical_date=None)
    assert done.state == "success", done.errors
    assert {"what": "Runtime", "outcome": "ok"} in done.results["look"]
    (tmp_path / "file").write_text("")
    connection["extra"] = {"backend": "local", "staging_dir": str(tmp_path / "file" / "tony")}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    failed = run(dag, logical_date=None)
    assert failed.state == "failed"
