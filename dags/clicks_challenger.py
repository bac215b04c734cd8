"""
### Publish a model only if it is better

Each week: train a new model, and measure it and the published model on the same held-out clicks. Publish the new model
if it is better. Otherwise the published model stays. The first model is always published.

Each part is a separate task. To repeat the comparison, for example with a better `clicks/evaluate.py`, clear `evaluate`
and the tasks after it. The training does not run again.

`macros.tony.newest_model` returns the published model of an *earlier* week. So a model is never compared with itself.

The task `publish` has the outlet `clicks_challenger_model`. A DAG with `schedule=[Asset("clicks_challenger_model")]`
finds the version, its metrics and the directory of the model in the asset event. If the published model stays, there is
no event.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_examples.clicks import DAY, training_job, write_clicks
from tony_examples.form import PUBLISHING, PYTHON_ENV, how_to_train, where_to_run
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

MODELS = "clicks_challenger/models"
MODEL = Asset("clicks_challenger_model")


@task
def evaluation_files(clicks: Any, trained: Any, published: str) -> list[str]:
    """Return the files of the evaluation: its programs, the held-out clicks, and a directory for each model.

    `stored:` restricts a file to the store. Otherwise the result of a task could name a file of the worker.
    """
    directories = {"held_out": clicks["held_out"], "challenger": trained["model_dir"], "published": published}
    stored = [f"stored:{uri}::{name}" for name, uri in directories.items() if uri]
    return ["clicks/evaluate.py", "clicks/model.py", *stored]


@task.branch
def compare(evaluated: Any) -> str:
    """Return the task that continues the run: `publish` or `keep`."""
    metrics = evaluated["metrics"]  # numbers, or the text NaN
    challenger, published = (float(metrics.get(f"{name}_log_loss", "inf")) for name in ("challenger", "published"))
    print(f"Log loss: {challenger:.4f} of the new model, {published:.4f} of the published model (less is better)")
    is_better = published - challenger > get_current_context()["params"]["minimum_gain"]
    return "publish" if is_better else "keep"


@task(outlets=[MODEL])
def publish(trained: Any, evaluated: Any) -> Any:
    """Publish the new model as a new version."""
    return publish_model(MODELS, trained, evaluated)


@task
def keep() -> None:
    """Log that the published model stays."""
    print("The published model stays, because the new model is not better")


with DAG(
    "clicks_challenger",
    schedule="@weekly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two concurrent runs would compare their models with the same published model
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        **how_to_train(),
        "minimum_gain": Param(
            0.0,
            type="number",
            minimum=0,
            maximum=1,
            title="Minimum gain",
            description="Publish the new model only if its log loss is lower by more than this value.",
            section=PUBLISHING,
        ),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    clicks = write_clicks(DAY)

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
            "files": evaluation_files(clicks, train.output, "{{ macros.tony.newest_model('" + MODELS + "') }}"),
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
    compare(evaluate.output) >> [publish(train.output, evaluate.output), keep()]
