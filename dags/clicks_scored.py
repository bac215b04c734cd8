"""
### Train, then score: one pipeline for both

Every day: learn from the day's clicks, publish the model, and let it say for every advertisement that could be shown
tomorrow how likely a click is. What is to be scored comes in a few hundred files, *shards*; what is made of them
appears in its directory all at once, or not at all.

**Scoring is a job like training**, with another shape. Its tasks need not know each other, so none waits for others:
each begins as soon as its container is there (`start: first-come`), also where the queue has room for a few at a time.
Each takes one shard after the other (`deal: queue`), so a fast node scores more of them than a slow one.

**Only what failed is repeated.** A scorer that dies, or whose node does, gives the shard that it was at back to the
others, and what it has scored before stays scored: `shard.done()` has the predictions of that shard on the store before
it counts. A scorer starts again alone.

**All of the predictions, or none.** `outputs` gathers what the scorers have made beside its target, and puts it there
by one rename when the job has succeeded, with a `_SUCCESS`. Whoever reads the directory never sees half of a day. Run
the day again, and its own predictions are replaced.

The task `score` has the asset `clicks_scored_predictions` for an outlet, for DAGs that go on with them.

The programs are `clicks/train.py` and `clicks/score.py`, for which NumPy is all that is needed. The data are made up.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Asset, Param

from tony_examples.clicks import training_job, write_clicks, write_unseen
from tony_examples.form import DATA, PYTHON_ENV, how_to_train, where_to_run
from tony_examples.publishing import publish
from tony_provider.operators.tony import TonyTrainOperator

MODELS = "clicks_scored/models"
PREDICTIONS = Asset("clicks_scored_predictions")

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
            description="Files with what is to be scored.",
            section=DATA,
        ),
        "scorers": Param(
            6,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Scorers",
            description="Tasks that score, as many at a time as there is room for.",
            section=DATA,
        ),
        **how_to_train(epochs=2),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    unseen = write_unseen()

    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(hours=1),
        job=training_job(),
    )
    published = publish(MODELS, train.output)

    score = TonyTrainOperator(
        task_id="score",
        yarn_queue="{{ params.queue or '' }}",
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        outlets=[PREDICTIONS],
        job={
            "framework": "standalone",
            "start": "first-come",
            # `stored:`: a file of the store, whatever the other task returned, and never one of this machine.
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

    write_clicks() >> train
    [published, unseen] >> score
