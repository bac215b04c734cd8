"""
### Learn from every day's clicks, day after day

Every day: take the clicks of that day, begin with the model of the day before (*warm start*), train it a little
further, and publish it. What people like changes slowly, so each model is a good beginning for the next, and few
epochs do.

**The order of days.** A day's training waits until the day before is published (`wait_for_downstream`, which is
`depends_on_past` and a little more: not only the training of that day must have succeeded, but what comes directly
after it, its publishing). So a day that fails keeps the later ones waiting, until somebody mends and clears it.
That is the price of a chain. Trainings that begin from nothing need none: leave out `warm_start` and
`wait_for_downstream`, and a day that fails is one day that failed.

**Backfills.** `airflow backfill create --dag-id clicks_daily --from-date 2026-01-01 --to-date 2026-03-31
--reprocess-behavior failed` makes up for three months. `macros.tony.newest_model` names the newest model of an
*earlier* day than the run's, so that nothing is learnt from the future, and an older day's model does not become
the current one.

**How many at a time.** These trainings are deferred: they wait in the triggerer, without a worker's slot. So
neither the workers nor `max_active_tasks` limit them, nor a pool, unless it is one that counts deferred tasks
(*Include deferred*). `max_active_tis_per_dag` counts them, over all runs: here it is 1, and days that do not wait
for each other could have 3.

Runs that are triggered without a date are about the day on which they were triggered. They wait for no other day.

The training code is `clicks/train.py`, for which NumPy is all that is needed, here and in the containers. The data
are made up. The rest comes from the connection `tony_default`: on which cluster, and where data and models are
kept.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Asset, Param

from tony_examples.clicks import training_job, write_clicks
from tony_examples.form import TRAINING, how_to_train, where_to_run
from tony_examples.publishing import publish
from tony_provider.operators.tony import TonyTrainOperator

MODELS = "clicks_daily/models"
MODEL = Asset("clicks_daily_model")

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
            description="Begin with the newest model of an earlier day; else with nothing.",
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

    write_clicks() >> train
    publish.override(outlets=[MODEL])(MODELS, train.output)
