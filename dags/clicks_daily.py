"""
### Train on the clicks of each day

Each day: train on the clicks of that day, and publish the model. The training starts with the model of the day before
(*warm start*). Preferences change slowly, so each model is a good start for the next one, and few epochs are enough.

**Order of the days.** `wait_for_downstream` delays a training until the training *and* the publication of the day
before have succeeded. So a failed day blocks all later days until you fix the cause and clear the failed task.
Trainings without a warm start do not need this: remove `warm_start` and `wait_for_downstream`.

**Backfills.** This command trains three months: `airflow backfill create --dag-id clicks_daily --from-date 2026-01-01
--to-date 2026-03-31 --reprocess-behavior failed`. `macros.tony.newest_model` returns the model of an *earlier* day. So
the training of an old day does not start with a newer model, and its own model does not become the current version.

**Concurrency.** The trainings are deferred, so they need no worker slot while they wait, and `max_active_tasks` does
not limit them. A pool limits them only if it includes deferred tasks. `max_active_tis_per_dag` limits them over all
runs. It is 1 here, but days that do not wait for each other can train concurrently.

A run without a logical date is for the day of its trigger, and does not wait for another day.

The training program is `clicks/train.py`. It needs NumPy in the containers, and the task `write_clicks` needs NumPy on
Airflow's workers. The data are generated. The connection `tony_default` defines the cluster and the store.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, task

from tony_examples.clicks import DAY, training_job, write_clicks
from tony_examples.form import TRAINING, how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

MODELS = "clicks_daily/models"
MODEL = Asset("clicks_daily_model")


@task(outlets=[MODEL])
def publish(trained: Any) -> Any:
    """Publish the model as a new version."""
    return publish_model(MODELS, trained)


with DAG(
    "clicks_daily",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "warm_start": Param(
            True,
            type="boolean",
            title="Warm start",
            description="Start with the published model of an earlier day. Otherwise start with zeros.",
            section=TRAINING,
        ),
        **how_to_train(epochs=2),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        warm_start="{{ macros.tony.newest_model('" + MODELS + "') if params.warm_start else '' }}",
        wait_for_downstream=True,
        max_active_tis_per_dag=1,
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        job=training_job(),
    )

    write_clicks(DAY) >> train
    publish(train.output)
