"""Tasks as Airflow parses and renders them, without running them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from tony_provider.operators.tony import TonyTrainOperator


def parsed_dag(folder: Path, name: str) -> TonyTrainOperator:
    """The one task of a DAG file, as Airflow's DAG processor parses the file."""
    bag = DagBag(dag_folder=str(folder / name), bundle_path=folder)
    assert bag.import_errors == {}, bag.import_errors
    (dag,) = bag.dags.values()
    (task,) = dag.tasks
    assert isinstance(task, TonyTrainOperator)
    return task


def rendered(task: TonyTrainOperator, params: Mapping[str, Any] | None = None) -> TonyTrainOperator:
    """The task as Airflow's task runner renders it, with the context of a task."""
    instance = RuntimeTaskInstance.model_construct(
        id=uuid4(),
        task_id=task.task_id,
        dag_id=task.dag_id,
        run_id="manual",
        try_number=1,
        map_index=-1,
        task=task,
        _ti_context_from_server=None,
        _cached_template_context=None,
    )
    context = instance.get_template_context()
    context["params"] = {**context["params"], **(params or {})}
    instance.render_templates(context)
    return task
