"""DAGs made in tests, run by Airflow's own dag.test(): real task runner, real database, triggers inline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import clear_task_instances
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions.dag import _run_task
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.airflow_home import DAGS
from tony_provider.operators import job_summaries

# The channel of dag.test() to Airflow, unlike a real task's, is lost if two threads send at once. On a busy machine
# they would: a call that has not ended in time goes on beside the task.
job_summaries.KEEP_SECONDS = 60.0


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
    errors = _errors(dag)
    _add(dag)
    return _what_became_of(dag.test(**options), errors)


def run_again(dag: DAG, run_id: str, cleared: Collection[str]) -> Run:
    """Clear these tasks of a run that has ended, as people do, and run them; what others have returned stays."""
    errors = _errors(dag)
    with create_session() as session:
        dag_run = session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == run_id)).one()
        instances = [ti for ti in dag_run.get_task_instances(session=session) if ti.task_id in cleared]
        clear_task_instances(instances, session)
        dag_run.state = DagRunState.RUNNING
        dag_run.dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        _finish(dag, dag_run, session)
        return _what_became_of(dag_run, errors)


def run_made_with(dag: DAG, run_id: str, **fields: Any) -> Run:
    """Run it once, in a run as a scheduler makes it; ``fields`` as for ``create_dagrun``: dag.test() takes fewer."""
    errors = _errors(dag)
    _add(dag)
    kind = {"run_type": DagRunType.SCHEDULED, "triggered_by": DagRunTriggeredByType.TIMETABLE}
    with create_session() as session:
        serialized = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        dag_run = serialized.create_dagrun(
            run_id=run_id, state=DagRunState.RUNNING, session=session, **{**kind, **fields}
        )
        dag_run.dag = serialized
        _finish(dag, dag_run, session)
        return _what_became_of(dag_run, errors)


def _finish(dag: DAG, dag_run: DagRun, session: Session) -> None:
    session.commit()
    while dag_run.state == DagRunState.RUNNING:
        session.expire_all()
        ready, _ = dag_run.update_state(session=session)
        for ti in ready:
            ti.try_number += 1
            session.commit()
            _run_task(ti=ti, task=dag.task_dict[ti.task_id], run_triggerer=True)


def _errors(dag: DAG) -> dict[str, BaseException]:
    """What tasks of the DAG will fail with, from now on."""
    errors: dict[str, BaseException] = {}

    def remember(context: Mapping[str, Any]) -> None:
        errors[context["ti"].task_id] = context["exception"]

    for task in dag.tasks:
        if isinstance(task, BaseOperator):  # mapped ones cannot be changed any more
            task.on_failure_callback = [*task.on_failure_callback, remember]
    return errors


def _what_became_of(dag_run: DagRun, errors: dict[str, BaseException]) -> Run:
    instances = {ti.task_id: ti for ti in dag_run.get_task_instances()}
    results = {name: ti.xcom_pull(task_ids=name) for name, ti in instances.items()}
    return Run(str(dag_run.state), errors, results, dag_run.run_id, instances)


def _add(dag: DAG) -> None:
    """Make it known to the database: dag.test() otherwise looks for it in the DAGs' folder."""
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(dag_folder=str(DAGS))
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
