"""
### Search for the best hyperparameters

Train one candidate for each learning rate with each batch size, as mapped instances of one task. Then choose the
candidate with the smallest error, and publish its model. A candidate that fails is left out of the comparison.

- `max_active_tis_per_dag` limits the concurrent candidates. While they wait, they need no worker slot, because they are
  deferred.
- `checkpoint_key` names each candidate by its hyperparameters, not by its position in the list. So a retry finds the
  checkpoints of the candidate, even if the list has changed.

The training program is `candidates/train.py`, which needs no packages. The data are generated.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

from airflow.sdk import DAG, Asset, Param, get_current_context, task

from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

MODEL = Asset("search_model")


@task
def candidates() -> list[dict[str, Any]]:
    """Return the arguments of each candidate: its name, and its hyperparameters."""
    params = get_current_context()["params"]
    return [
        {"checkpoint_key": f"rate {rate}, batch {batch}", "env_vars": {"RATE": str(rate), "BATCH": str(batch)}}
        for rate, batch in product(params["rates"], params["batches"])
    ]


@task(trigger_rule="all_done_min_one_success")
def best(trained: Any) -> Any:
    """Return the result of the candidate with the smallest error."""
    # If a candidate diverges, its error is the text NaN or Infinity. A candidate that was marked as failed has none.
    converged = [each for each in trained if isinstance(each["metrics"].get("error"), float)]
    if not converged:
        raise ValueError("no candidate has converged: see the logs of the task train")
    found = min(converged, key=lambda each: each["metrics"]["error"])
    metrics = found["metrics"]
    print(
        f"The best of {len(converged)} candidates:"
        f" rate {metrics['rate']:g}, batch {metrics['batch']:g}, error {metrics['error']:.4f}"
    )
    return found


@task(outlets=[MODEL])
def publish(trained: Any) -> Any:
    """Publish the model of the best candidate as a new version."""
    return publish_model("search/models", trained)


with DAG(
    "search",
    schedule=None,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
    params={
        "rates": Param(
            [0.01, 0.1, 1.0],
            type="array",
            items={"type": "number", "exclusiveMinimum": 0, "maximum": 100},
            minItems=1,
            maxItems=10,
            title="Learning rates",
            description="As a list: `[0.01, 0.1]`.",
            section="Candidates",
        ),
        "batches": Param(
            [8, 64],
            type="array",
            items={"type": "integer", "minimum": 1, "maximum": 4096},
            minItems=1,
            maxItems=10,
            title="Batch sizes",
            description="As a list. Each learning rate is combined with each batch size.",
            section="Candidates",
        ),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator.partial(
        task_id="train",
        map_index_template="{{ task.checkpoint_key }}",
        max_active_tis_per_dag=3,
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        job={
            "framework": "standalone",
            "files": ["candidates/train.py"],
            "tasks": {
                "worker": {"memory": "512MiB", "command": 'python train.py --rate "$RATE" --batch "$BATCH"'},
            },
        },
    ).expand_kwargs(candidates())

    publish(best(train.output))
