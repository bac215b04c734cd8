"""The example DAGs, as Airflow loads them."""

from __future__ import annotations

from airflow.dag_processing.dagbag import BundleDagBag, DagBag

from tests.airflow_dags import Run
from tests.demo.airflow import REPOSITORY

FOLDER = REPOSITORY / "dags"


def example_dags() -> DagBag:
    """With their folder on the import path, where it stays: tasks run in this process."""
    return BundleDagBag(dag_folder=str(FOLDER), bundle_path=FOLDER, bundle_name="examples")


def succeeded(done: Run) -> Run:
    assert done.state == "success", done.errors
    return done


def states(done: Run) -> dict[str, str]:
    return {task_id: str(ti.state) for task_id, ti in done.task_instances.items()}
