"""
### Train and publish one model per country

Train one model for each country, as mapped instances of one task. Each instance is a separate training, with
its own YARN application, checkpoints and retries. If a country fails, the others continue, and their models are
published.

The trainings of all DAGs can share a pool. Create a pool that counts deferred tasks, and set the variable
`TONY_EXAMPLES_POOL` of Airflow's processes to its name: `airflow pools set yarn_ml 8 "trainings at a time"
--include-deferred`. In your own DAG, write the name of the pool. By default, this DAG uses Airflow's default pool.

The training program is `countries/train.py`, which needs no packages. The data are generated.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

POOL = os.environ.get("TONY_EXAMPLES_POOL", "default_pool")
COMMAND = "python train.py --country {{ task.checkpoint_key }} --day {{ macros.tony.run_date() | ds }}"


@task
def countries() -> list[str]:
    """Return the countries to train. Airflow maps the task `train` over this list."""
    return list(get_current_context()["params"]["countries"])


@task(trigger_rule="all_done_min_one_success")
def publish(trained: Any) -> Any:
    """Publish the model of a country as a new version. Each country has its own versions."""
    country = trained["returned"]["country"]
    return publish_model(f"one_model_per_country/models/{country}", trained)


@task
def all_trained() -> None:
    """Fail the run if a country has failed. Airflow then sets this task to `upstream_failed`."""


with DAG(
    "one_model_per_country",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "countries": Param(
            ["de", "fr", "nl"],
            type="array",
            items={"type": "string", "pattern": "^[a-z]{2}$"},
            minItems=1,
            uniqueItems=True,
            title="Countries",
            description="Two-letter codes. Each country has its own model.",
            section="Training",
        ),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator.partial(
        task_id="train",
        map_index_template="{{ task.checkpoint_key }}",
        pool=POOL,
        max_active_tis_per_dagrun=2,
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        job={
            "framework": "standalone",
            "files": ["countries/train.py"],
            "tasks": {
                "worker": {
                    "memory": "512MiB",
                    "command": COMMAND,
                }
            },
        },
    ).expand(checkpoint_key=countries())

    publish.expand(trained=train.output)
    train >> all_trained()
