"""DAGs made in tests, run by Airflow's own dag.test(): real task runner, real database, triggers inline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.sdk import DAG, BaseOperator

from tests.airflow_home import DAGS


@dataclass
class Run:
    """What became of a DAG run."""

    state: str
    errors: dict[str, BaseException] = field(default_factory=dict)  # of tasks that failed, mapped ones left out
    results: dict[str, Any] = field(default_factory=dict)  # what tasks returned
    run_id: str = ""
    task_instances: dict[str, Any] = field(default_factory=dict)


def run(dag: DAG, **options: Any) -> Run:
    """Run it once; ``options`` as for dag.test()."""
    errors: dict[str, BaseException] = {}

    def remember(context: Mapping[str, Any]) -> None:
        errors[context["ti"].task_id] = context["exception"]

    for task in dag.tasks:
        if isinstance(task, BaseOperator):  # mapped ones cannot be changed any more
            task.on_failure_callback = [remember]
    _add(dag)
    dag_run = dag.test(**options)
    instances = {ti.task_id: ti for ti in dag_run.get_task_instances()}
    results = {name: ti.xcom_pull(task_ids=name) for name, ti in instances.items()}
    return Run(str(dag_run.state), errors, results, dag_run.run_id, instances)


def _add(dag: DAG) -> None:
    """Make it known to the database: dag.test() otherwise looks for it in the DAGs' folder."""
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(dag_folder=str(DAGS))
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
