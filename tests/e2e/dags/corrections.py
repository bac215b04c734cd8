"""Trainings of days whose rows are corrected afterwards: twice the same, to compare a part with a whole retraining."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, task
from jobs import TWICE, job

from tony_provider.operators.stale_models import TonyStaleModels
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

ROWS = os.environ["E2E_ROWS"]


@task
def publish(models: str, trained: Any) -> None:
    publish_model(models, trained)


for dag_id in (f"corrected{name}{part}" for name in ("", "_few", "_by_dag") for part in ("", "_whole")):
    # In the past: only backfills make runs.
    dates: dict[str, Any] = {"start_date": datetime(2000, 1, 1), "end_date": datetime(2010, 1, 1)}
    with DAG(dag_id, schedule="@daily", **dates, catchup=False, default_args={"depends_on_past": True}):
        models = f"{dag_id}/models"
        train = TonyTrainOperator(
            task_id="train",
            job=job(
                files=["programs/fold_rows.py"],
                inputs={
                    "rows": {
                        "paths": [f"{ROWS}/{dag_id.removesuffix('_whole')}/{{{{ logical_date | ds }}}}"],
                        "fetch": True,
                    },
                },
                tasks={"worker": {"memory": "128MiB", "command": "python fold_rows.py"}},
                env={},
            ),
            wait_for_downstream=True,
            warm_start=f"{{{{ macros.tony.newest_model('{models}') }}}}",
            deferrable=True,
            poll_interval=1,
            **TWICE,
        )
        publish(models, train.output)

with DAG("repeats_corrected", schedule=None):
    stale = TonyStaleModels(task_id="stale", dag_ids=["corrected_by_dag"])
    TriggerDagRunOperator.partial(
        task_id="repeat", reset_dag_run=True, wait_for_completion=True, deferrable=True, poke_interval=1
    ).expand_kwargs(stale.output)
