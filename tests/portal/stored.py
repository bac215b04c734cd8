"""Summaries in Airflow's database, as tasks would have left them there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from sqlalchemy import insert

from tony_provider.cluster.records.summary import (
    CURVE_POINTS,
    DETAILS_KEY,
    JOB_KEY,
    REFUSAL_KEY,
    Curve,
    JobSummary,
    in_parts,
)
from tony_provider.runtime.protocol.status import FinalStatus, TimeUse, TypeUse

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)
BUNDLE = "portal-tests"


def day(number: int) -> datetime:
    return MORNING + timedelta(days=number)


def run_id(number: int) -> str:
    return f"scheduled__{day(number).isoformat()}"


def application_id(number: int) -> str:
    return f"application_1767600000000_{number:05}"


def summary(number: int, dag_id: str = "clicks", **fields: Any) -> JobSummary:
    """Of the application with this number, which trained for the day with this number unless ``fields`` say else."""
    known: dict[str, Any] = {
        "application_id": application_id(number),
        "application_dir": f"file:///nowhere/jobs/x-00000000000000000000/applications/{application_id(number)}",
        "dag_id": dag_id,
        "run_id": run_id(number),
        "task_id": "train",
        "run_date": day(number).isoformat(),
        "user": "alice",
        "name": f"{dag_id}.train",
        "verdict": FinalStatus.SUCCEEDED,
        "submitted_ms": int(day(number).timestamp() * 1000),
        "finished_ms": int(day(number).timestamp() * 1000) + 3_600_000,
        "times": TimeUse(queue=60.0, allocation=30.0, training=3000.0),
        "use": [TypeUse(type="worker", tasks=2, container_seconds=7200.0, memory_bytes=2 << 30, vcores=2, gpus=1)],
        "metrics": {"loss": 0.5},
    }
    return JobSummary(**{**known, **fields})


def add_dag(dag_id: str) -> None:
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
        session.flush()
        session.merge(DagModel(dag_id=dag_id, bundle_name=BUNDLE, fileloc=f"/dags/{dag_id}.py"))  # type: ignore[no-untyped-call]


def add_schedule(dag_id: str, schedule: Any) -> None:
    """As the DAG processor has found it in a DAG's file."""
    with DAG(dag_id, schedule=schedule, start_date=day(0)) as dag:
        EmptyOperator(task_id="train")
    SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), BUNDLE)


def add_runs(dag_id: str, count: int, first: int = 0) -> list[int]:
    """Runs of some days; returns their ids in the database."""
    runs = [
        DagRun(
            dag_id=dag_id,
            run_id=run_id(number),
            logical_date=day(number),
            run_after=day(number),
            run_type=DagRunType.SCHEDULED,
        )
        for number in range(first, first + count)
    ]
    with create_session() as session:
        session.add_all(runs)
        session.flush()
        return [int(run.id) for run in runs]


def add_partitions(dag_id: str, keys: Mapping[int, str], *, dated: bool = True) -> list[int]:
    """Runs of partitions, all made long after the days that they are for; returns their ids in the database."""
    runs = [
        DagRun(
            dag_id=dag_id,
            run_id=run_id(number),
            partition_key=key,
            partition_date=day(number) if dated else None,
            run_after=day(300),
            run_type=DagRunType.ASSET_TRIGGERED,
        )
        for number, key in keys.items()
    ]
    with create_session() as session:
        session.add_all(runs)
        session.flush()
        return [int(run.id) for run in runs]


def instance(dag_id: str, number: int, state: str | None, **more: Any) -> dict[str, Any]:
    """The columns of a task instance."""
    return {
        "id": uuid4(),
        "dag_id": dag_id,
        "run_id": run_id(number),
        "task_id": "train",
        "map_index": -1,
        "state": state,
        "pool": "default_pool",
        "pool_slots": 1,
        **more,
    }


def add_instance(dag_id: str, number: int, state: str | None, **more: Any) -> None:
    with create_session() as session:
        session.execute(insert(TaskInstance).values(**instance(dag_id, number, state, **more)))


def value(dag_run_id: int, about: JobSummary, key: str, text: str) -> dict[str, Any]:
    """The columns of a value in the state of the summary's task instance."""
    return {
        "dag_run_id": dag_run_id,
        "dag_id": about.dag_id,
        "run_id": about.run_id,
        "task_id": about.task_id,
        "map_index": about.map_index,
        "key": key,
        "value": text,
    }


def values(dag_run_id: int, about: JobSummary) -> list[dict[str, Any]]:
    """As the operator keeps a summary."""
    parts = zip((JOB_KEY, DETAILS_KEY), in_parts(about), strict=True)
    return [value(dag_run_id, about, key + about.application_id, json.dumps(part)) for key, part in parts]


def add(dag_run_id: int, about: JobSummary) -> None:
    add_values(values(dag_run_id, about))


def add_values(columns: list[dict[str, Any]]) -> None:
    with create_session() as session:
        session.execute(insert(TaskStateStoreModel), columns)


def add_refusal(dag_run_id: int, number: int, dag_id: str, text: str) -> None:
    """As the operator keeps why the second try of the run was refused."""
    refusal = {"text": text, "try_number": 2, "time_ms": 1_767_600_000_000}
    add_values([value(dag_run_id, summary(number, dag_id), REFUSAL_KEY, json.dumps(refusal))])


def curve(metric: str) -> Curve:
    """A whole one."""
    points = range(CURVE_POINTS)
    return Curve(
        metric=metric,
        steps=[100 * at for at in points],
        seconds=[at / 3 for at in points],
        values=[1 / (at + 1) for at in points],
    )
