"""
### Try several settings at once, and take the best

One training for each learning rate with each batch size, as mapped instances of one task; then the best of their
models is published.

- How many train at a time is the task's `max_active_tis_per_dag`; being deferred, they need no worker's slot
  meanwhile.
- `checkpoint_key` names each training by its settings, not by its place in the list. So what a failed one has saved
  is still its own when the run is cleared with a longer or a shorter list.
- What differs goes into `overrides`, which are laid over the job. Without more they may touch sizes and limits, such
  as the memory; `allowed_overrides` names what else.
- A training that fails is only one fewer to choose from; the run succeeds as long as one of them does.

`docs/decorator.md` has a search whose training code is a function of the DAG file.
"""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import product
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_examples.clicks import training_job, write_clicks
from tony_examples.form import TRAINING, where_to_run
from tony_examples.publishing import publish
from tony_provider.operators.tony import TonyTrainOperator

MODELS = "clicks_search/models"
MODEL = Asset("clicks_search_model")
SEARCH = "What to try"


@task
def settings() -> list[dict[str, Any]]:
    """Arguments of each training that are not the same for all."""
    params = get_current_context()["params"]
    return [
        {
            "checkpoint_key": f"rate {rate}, batches of {size}",
            "overrides": {"env": {"LEARNING_RATE": str(rate), "BATCH_SIZE": str(size)}},
        }
        for rate, size in product(params["learning_rates"], params["batch_sizes"])
    ]


@task(trigger_rule="all_done_min_one_success")
def best(trained: Any) -> Any:
    """What the training returned whose model errs least on held-out clicks."""
    # One that went astray has the text NaN for a number.
    sound = [each for each in trained if isinstance(each["metrics"]["log_loss"], float)]
    if not sound:
        raise ValueError("no training has reported a log loss: see the logs of the task train")
    found = min(sound, key=lambda each: each["metrics"]["log_loss"])
    metrics = found["metrics"]
    print(
        f"The best of {len(sound)}: learning rate {metrics['learning_rate']:g}, batches of {metrics['batch_size']:g},"
        f" log loss {metrics['log_loss']:.4f} (chance is {math.log(2):.4f})"
    )
    return found


with DAG(
    "clicks_search",
    schedule=None,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    params={
        "learning_rates": Param(
            [0.01, 0.1, 1.0],
            type="array",
            items={"type": "number", "exclusiveMinimum": 0, "maximum": 100},
            minItems=1,
            maxItems=10,
            title="Learning rates",
            description="As a list: `[0.01, 0.1]`.",
            section=SEARCH,
        ),
        "batch_sizes": Param(
            [64],
            type="array",
            items={"type": "integer", "minimum": 1, "maximum": 4000},
            minItems=1,
            maxItems=10,
            title="Batch sizes",
            description="As a list. There is a training for each learning rate with each of them.",
            section=SEARCH,
        ),
        "epochs": Param(
            5,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Epochs",
            description="Of each training.",
            section=TRAINING,
        ),
        **where_to_run(),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator.partial(
        task_id="train",
        map_index_template="{{ task.checkpoint_key }}",
        yarn_queue="{{ params.queue or '' }}",
        allowed_overrides=["env.LEARNING_RATE", "env.BATCH_SIZE"],
        max_active_tis_per_dag=3,
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        job=training_job("--epochs {{ params.epochs }} --learning-rate $LEARNING_RATE --batch-size $BATCH_SIZE"),
    ).expand_kwargs(settings())

    write_clicks() >> train
    publish.override(outlets=[MODEL])(MODELS, best(train.output))
