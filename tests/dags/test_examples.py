"""Rules for all example DAGs, and runs of digits_train and tony_doctor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator

from tests.airflow_dags import run
from tests.dags.examples import FOLDER
from tests.demo.airflow import REPOSITORY
from tests.demo.published import Published
from tony_provider.hooks.tony import TonyHook


@pytest.fixture
def digits_train(examples: DagBag) -> DAG:
    dag: DAG = examples.dags["digits_train"]
    return dag


def test_all_dags_are_found_and_no_training_program_is_loaded(examples: DagBag) -> None:
    assert not examples.import_errors
    assert {Path(dag.fileloc).parent for dag in examples.dags.values()} == {FOLDER}


def test_every_parameter_has_a_title_and_a_section_and_numbers_have_limits(examples: DagBag) -> None:
    for dag in examples.dags.values():
        for name in dag.params:
            param = dag.params.get_param(name)
            assert param.schema.get("title"), (dag.dag_id, name)
            assert param.schema.get("section"), (dag.dag_id, name)
            assert param.resolve() == dag.params[name]
            if param.schema["type"] in ("integer", "number"):
                assert param.schema.keys() & {"minimum", "exclusiveMinimum"}, (dag.dag_id, name)


def test_every_example_has_documentation_and_is_on_the_page_of_examples(examples: DagBag) -> None:
    page = (REPOSITORY / "docs" / "get-started" / "examples.md").read_text()
    assert [name for name, dag in examples.dags.items() if not dag.doc_md] == []
    assert [name for name in examples.dags if f"`{name}`" not in page] == []


def test_examples_use_stable_interfaces_only() -> None:
    """Users copy them. The table of docs/reference/stable.md names the modules."""
    page = (REPOSITORY / "docs" / "reference" / "stable.md").read_text()
    stable = {name.rpartition(".")[0] for name in re.findall(r"`(tony_provider\.[\w.]+)`", page)}
    files = sorted([*FOLDER.glob("*.py"), *(FOLDER / "tony_examples").glob("*.py")])
    used = {(file.name, name) for file in files for name in re.findall(r"from (tony_provider[\w.]*)", file.read_text())}
    assert {(file, name) for file, name in used if name not in stable} == set()


def test_each_job_names_programs_that_exist(examples: DagBag) -> None:
    """Other files of the jobs are on the store, or come from another task."""
    found = {name for dag in examples.dags.values() for task in dag.tasks for name in _files(task)}
    assert len(found) > 5
    assert [name for name in found if not (FOLDER / name).is_file()] == []
    folders = {Path(name).parts[0] for name in found}
    ignored = (FOLDER / ".airflowignore").read_text().splitlines()
    assert [folder for folder in folders if f"{folder}/" not in ignored] == []


def _files(task: Any) -> list[str]:
    job = task.partial_kwargs.get("job") if isinstance(task, MappedOperator) else getattr(task, "job", None)
    files = job.get("files") if isinstance(job, dict) else None
    return [name for name in files if not name.startswith("stored:")] if isinstance(files, list) else []


def test_digits_are_read_from_data_to_published_model(digits_train: DAG, hook: TonyHook) -> None:
    """Run without a logical date, as if the API had triggered it, on the embedded local cluster."""
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
def test_digits_are_warm_started_from_the_published_model(digits_train: DAG, hook: TonyHook) -> None:
    """One epoch is enough only for a network that starts with these weights."""
    first = run(digits_train, logical_date=None)
    assert first.state == "success", first.errors
    again = run(digits_train, logical_date=None, run_conf={"warm_start": True, "epochs": 1})
    assert again.state == "success", again.errors
    assert again.results["train"]["step"] == 1
    assert again.results["train"]["resumed_step"] is None
    assert Published.current(hook.storage(), hook.layout.root).version == 2


def test_the_doctor_returns_the_findings_of_a_worker(
    examples: DagBag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = examples.dags["tony_doctor"]
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path / "tony")}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    done = run(dag, logical_date=None)
    assert done.state == "success", done.errors
    assert {"what": "Runtime", "outcome": "ok"} in done.results["diagnose"]
    (tmp_path / "file").write_text("")
    connection["extra"] = {"backend": "local", "staging_dir": str(tmp_path / "file" / "tony")}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    failed = run(dag, logical_date=None)
    assert failed.state == "failed"
