"""
### Train on a table that a Spark task wrote

Each day: a Spark program writes a table of features to the store, and a training reads its files.

**Without Spark.** If Airflow's Spark provider is not installed, the task `features` does not run Spark. It simulates
the program: it writes files of the same format. With `apache-airflow-providers-apache-spark`, the task is a
`SparkSubmitOperator`, which needs the connection `spark_default`.

**Input files.** The job lists the files of the table and ignores `_SUCCESS`. `fetch` copies the files to the node, so
the training program needs no HDFS client. The example uses JSON lines, because they need no packages. For Parquet, set
`"format": "parquet"`, and install pyarrow in the containers.

The programs are `features/spark_job.py` and `features/train.py`. The data are generated.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from airflow.sdk import DAG, Param, task

from tony_provider.operators.tony import TonyTrainOperator

try:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
except ImportError:  # the Spark provider is not installed
    SparkSubmitOperator = None

DAY = "{{ macros.tony.run_date() | ds }}"
ROWS = 4000
FILES = 4


@task
def table(day: str) -> str:
    """Return the URI of the table of a day, below the staging directory of the connection."""
    from tony_provider.hooks.tony import TonyHook

    with TonyHook() as hook:
        return f"{hook.layout.root}/spark_then_train/features/day={day}"


@task(task_id="features")
def simulated_features(day: str, output: Any) -> None:
    """Write a table as the Spark program does: files with JSON lines, and then _SUCCESS."""
    from tony_provider.hooks.tony import TonyHook

    print("The Spark provider is not installed: this task simulates the Spark program features/spark_job.py")
    random = Random(day)
    with TonyHook() as hook:
        hook.storage().remove(output, recursive=True)
        for number in range(FILES):
            rows = []
            for _ in range(ROWS // FILES):
                x = random.uniform(-1, 1)
                rows.append(json.dumps({"x": x, "y": 3 * x + random.gauss(0, 0.1)}))
            hook.storage().write(f"{output}/part-{number:05}.json", "\n".join(rows).encode())
        hook.storage().write(f"{output}/_SUCCESS", b"")


with DAG(
    "spark_then_train",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "epochs": Param(
            5,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Epochs",
            description="Number of passes through the rows of the table.",
            section="Training",
        ),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    output = table(DAY)

    if SparkSubmitOperator is None:
        features = simulated_features(DAY, output)
    else:
        features = SparkSubmitOperator(
            task_id="features",
            application=str(Path(__file__).with_name("features") / "spark_job.py"),
            application_args=["--day", DAY, "--output", output],
        )

    train = TonyTrainOperator(
        task_id="train",
        deferrable=True,
        execution_timeout=timedelta(hours=1),
        job={
            "framework": "standalone",
            "files": ["features/train.py"],
            "inputs": {
                "features": {"paths": ["{{ ti.xcom_pull('table') }}"], "format": "lines", "fetch": True},
            },
            "tasks": {
                "worker": {"memory": "512MiB", "command": "python train.py --epochs {{ params.epochs }}"},
            },
        },
    )

    features >> train
