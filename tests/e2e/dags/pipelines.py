"""Trainings of a day each, for backfills, with what comes after them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, get_current_context, task
from jobs import DIARY, FOUR_TIMES, ONCE, PARAMS, TWICE, job

from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.run_dates import period_end
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.runtime.storage.uris import join

MODELS = "clicks/models"
# Fails while there is such a file: an author's mistake, or bad data of a day, that somebody mends later.
UNLESS_BAD = "mkdir -p $FAULTS_DIR && test ! -e $FAULTS_DIR/../../bad-{{ logical_date | ds }} && exec python count.py"
# In the past: only backfills make runs.
DATES = {"start_date": datetime(2000, 1, 1), "end_date": datetime(2010, 1, 1)}
DAILY: dict[str, Any] = {"schedule": "@daily", **DATES, "catchup": False, "params": PARAMS}


def daily_job() -> dict[str, Any]:
    return job(tasks={"worker": {"memory": "128MiB", "command": UNLESS_BAD}})


@task
def publish(trained: Any) -> str:
    """Keep the model under the day that it was made for, as dags/digits_train.py does."""
    run = get_current_context()["dag_run"]
    end = period_end(run)
    with TonyHook() as hook:
        about = join(hook.layout.root, MODELS, "versions", f"{end:%Y%m%d}", "version.json")
        version = {"model_dir": trained["model_dir"], "period_end": end.isoformat()}
        write_atomically(hook.storage(), about, json.dumps(version).encode())
    return about


# A slow scheduler learns of a deferral only after the task has gone on, and then fails that try: more than one retry.
with DAG("independent", **DAILY):
    TonyTrainOperator(task_id="train", job=daily_job(), deferrable=True, poll_interval=1, **FOUR_TIMES)

with DAG("chained", **DAILY, default_args={"depends_on_past": True}):
    train = TonyTrainOperator(
        task_id="train",
        job=daily_job(),
        # Not only of the training of the day before is this one to begin with, but of the model that it has published.
        wait_for_downstream=True,
        warm_start=f"{{{{ macros.tony.newest_model('{MODELS}') }}}}",
        deferrable=True,
        poll_interval=1,
        **ONCE,
    )
    publish(train.output)

# With retries, for the same reason.
with DAG("evaluated", schedule=None, params=PARAMS):
    train = TonyTrainOperator(task_id="train", job=job(), deferrable=True, poll_interval=1, **TWICE)
    evaluate = TonyTrainOperator(
        task_id="evaluate",
        job=job(
            files=["stored:{{ ti.xcom_pull('train')['model_dir'] }}::model"],
            env={"FAULTS_DIR": DIARY},
            tasks={
                "worker": {"memory": "128MiB", "command": "mkdir -p $FAULTS_DIR && cp model/weights.json $FAULTS_DIR/"}
            },
        ),
        deferrable=True,
        poll_interval=1,
        **TWICE,
    )
    train >> evaluate
