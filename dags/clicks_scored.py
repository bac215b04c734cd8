"""
### Train a model, then run batch inference

Each day: train on the clicks of the day, and publish the model. Then predict the probability of a click for each
advertisement of the next day. The examples to score are in a few hundred files, the *shards*.

**Independent tasks.** Scorers do not wait for each other: with `start: first-come`, each starts as soon as it has a
container, even if the queue has room for only a few. With `deal: queue`, each scorer takes one shard after the other.
So a fast node scores more shards than a slow one.

**Failures.** If a scorer or its node fails, another scorer gets the shard that it was working on. Completed shards are
not scored again, because `shard.done()` stores their predictions first. A failed scorer restarts alone.

**Atomic output.** `outputs` collects the predictions in a temporary directory. When the job has succeeded, the
directory gets its final name, with a file `_SUCCESS`. So readers never see a part of the predictions. If you clear the
task, its new predictions replace the old ones.

The task `score` has the outlet `clicks_scored_predictions` for DAGs that process the predictions.

The programs are `clicks/train.py` and `clicks/score.py`, which need NumPy. The data are generated.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, task

from tony_examples.clicks import DAY, training_job, write_clicks, write_unseen
from tony_examples.form import DATA, PYTHON_ENV, how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

PREDICTIONS = Asset("clicks_scored_predictions")


@task
def publish(trained: Any) -> Any:
    """Publish the model as a new version."""
    return publish_model("clicks_scored/models", trained)


with DAG(
    "clicks_scored",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "shards": Param(
            200,
            type="integer",
            minimum=1,
            maximum=10000,
            title="Shards",
            description="Number of files to score.",
            section=DATA,
        ),
        "scorers": Param(
            6,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Scorers",
            description="Number of tasks that score. They run concurrently if the queue has room.",
            section=DATA,
        ),
        **how_to_train(epochs=2),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    unseen = write_unseen(DAY)

    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(hours=1),
        job=training_job(),
    )
    published = publish(train.output)

    score = TonyTrainOperator(
        task_id="score",
        yarn_queue="{{ params.queue or '' }}",
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        outlets=[PREDICTIONS],
        job={
            "framework": "standalone",
            "start": "first-come",
            # `stored:` restricts a file to the store. Otherwise the result of a task could name a file of the worker.
            "files": ["clicks/score.py", "clicks/model.py", "stored:{{ ti.xcom_pull('publish')['model_dir'] }}::model"],
            "python_env": PYTHON_ENV,
            "inputs": {
                "unseen": {"paths": ["{{ ti.xcom_pull('write_unseen')['unseen'] }}"], "deal": "queue", "fetch": True}
            },
            "outputs": {"predictions": {"path": "{{ ti.xcom_pull('write_unseen')['predictions'] }}", "layout": "flat"}},
            "tasks": {
                "worker": {
                    "instances": "{{ params.scorers }}",
                    "memory": "512MiB",
                    "command": "python score.py --model model",
                }
            },
        },
    )

    write_clicks(DAY) >> train
    [published, unseen] >> score
