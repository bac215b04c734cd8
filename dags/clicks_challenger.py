"""
### Publish a model only if it is better than the one before

Every week: train a new model, measure it and the published one on the same clicks, which neither has seen, and
publish the new one if it is better; else keep what there is. The first model has nothing to be better than.

Each part is a task of its own, so each can be cleared on its own. Clear `evaluate` with what comes after it, say
with a better `clicks/evaluate.py`, and the models are measured and compared again; the training is not repeated.
Which model was the published one is remembered by the task `published_model`, so that a new one is never compared
with itself.

`publish` has the asset `clicks_challenger_model` for an outlet. Its events tell the version, its metrics and its
place, for DAGs that are scheduled on it (`schedule=[Asset("clicks_challenger_model")]`); when the old model is
kept, there is none.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_examples.clicks import training_job, write_clicks
from tony_examples.form import PUBLISHING, PYTHON_ENV, how_to_train, where_to_run
from tony_examples.publishing import publish, published_model
from tony_provider.operators.tony import TonyTrainOperator

MODELS = "clicks_challenger/models"
MODEL = Asset("clicks_challenger_model")


@task
def contestants(clicks: Any, trained: Any, published: Any) -> list[str]:
    """The files of the evaluation: its code, what it measures on, and a directory for each model.

    `stored:` has these looked up on the store, and never on this machine.
    """
    models = {"challenger": trained["model_dir"], **({"published": published["model_dir"]} if published else {})}
    data = {"held_out": clicks["held_out"], **models}
    return ["clicks/evaluate.py", "clicks/model.py", *(f"stored:{uri}::{name}" for name, uri in data.items())]


@task.branch
def compare(evaluated: Any) -> str:
    """Which of the two ways the run goes on."""
    metrics = evaluated["metrics"]
    challenger, published = metrics["challenger_log_loss"], metrics.get("published_log_loss")
    print(f"Log loss: {challenger:.4f} of the new model, {published} of the published one; less is better")
    wanted = get_current_context()["params"]["minimum_gain"]
    return "publish" if published is None or published - challenger > wanted else "keep"


@task
def keep() -> None:
    """The published model stays."""
    print("The published model stays: the new one is not better")


with DAG(
    "clicks_challenger",
    schedule="@weekly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two at a time would be compared with the same model, and the worse be published last
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        **how_to_train(),
        "minimum_gain": Param(
            0.0,
            type="number",
            minimum=0,
            maximum=1,
            title="Minimum gain",
            description="By how much the log loss on held-out clicks must be less than the published model's.",
            section=PUBLISHING,
        ),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    clicks = write_clicks()

    train = TonyTrainOperator(
        task_id="train",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(hours=1),
        job=training_job(),
    )

    evaluate = TonyTrainOperator(
        task_id="evaluate",
        yarn_queue="{{ params.queue or '' }}",
        execution_timeout=timedelta(minutes=15),
        job={
            "framework": "standalone",
            "files": contestants(clicks, train.output, published_model(MODELS)),
            "python_env": PYTHON_ENV,
            "tasks": {
                "worker": {
                    "memory": "512MiB",
                    "command": "python evaluate.py --data held_out challenger $(test -d published && echo published)",
                }
            },
        },
    )

    clicks >> train
    compare(evaluate.output) >> [publish.override(outlets=[MODEL])(MODELS, train.output, evaluate.output), keep()]
