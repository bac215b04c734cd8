"""The example on each framework's page: its DAG file, and the program beside it; loaded and run as they stand there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from tests.airflow_dags import run
from tests.documents.pages import ROOT, blocks
from tony_provider.operators.tony import TonyTrainOperator

FOLDER = ROOT / "docs" / "training-code" / "frameworks"


def page(framework: str) -> Path:
    return FOLDER / f"{framework}.md"


def load(framework: str, folder: Path) -> DAG:
    """Write the page's files into an empty folder, and parse the DAG."""
    code = blocks(page(framework), "python")
    (source,) = [block for block in code if "from airflow" in block]
    programs = [block for block in code if block != source]
    (folder / f"{framework}_example.py").write_text(source)
    bag = DagBag(dag_folder=str(folder))
    assert not bag.import_errors
    dag: DAG = bag.dags[f"{framework}_example"]
    for name, program in zip(files(dag), programs, strict=True):
        (folder / name).write_text(program)
    return dag


def files(dag: DAG) -> list[str]:
    """Those beside the DAG file that its job names."""
    return list(job(dag).get("files", []))


def job(dag: DAG) -> dict[str, Any]:
    named = training(dag).job
    assert isinstance(named, dict)
    return named


def training(dag: DAG) -> TonyTrainOperator:
    (task,) = dag.tasks
    assert isinstance(task, TonyTrainOperator)
    return task


def model_files(given: dict[str, Any]) -> list[str]:
    """Those of the model that a training on this machine's disk has given back."""
    return sorted(path.name for path in Path(given["model_dir"].removeprefix("file://")).iterdir())


@pytest.fixture
def place(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for DAGs, whose trainings run on the embedded local cluster."""
    connection = {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(tmp_path / "tony")}}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def run_example(framework: str, folder: Path, python_env: str | None, **more: Any) -> dict[str, Any]:
    """What its training gives back, run with an environment of this machine's. ``more`` is laid over the job."""
    dag = load(framework, folder)
    training(dag).allowed_overrides = ["*"]
    training(dag).overrides = {"python_env": python_env, "am": {"memory": "256MiB"}, **more}
    done = run(dag, logical_date=None)
    assert done.state == "success", done.errors
    given: dict[str, Any] = done.results[training(dag).task_id]
    return given
