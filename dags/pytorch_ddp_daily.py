"""
### Train a PyTorch model each day

Each day: write the clicks of the day to the store, and train a network on them with DistributedDataParallel (DDP) in
several containers.

**Failures.** If a process, a container or a node fails, the job restarts all ranks from the newest snapshot. If the
whole application fails, Airflow's retry submits a new application, which resumes from the same snapshot. Each run of
the DAG is a separate training.

**Environment.** The training program is `ddp/train.py`. The containers need PyTorch. Set the variable
`TONY_EXAMPLES_PYTHON_ENV` of Airflow's processes to a directory on all nodes, or to a packed archive. In your own DAG,
write the value. By default, the containers use the environment of Airflow. The data are generated.

**GPUs.** With `"gpus": 4, "processes": "gpus"` in the task type, each container has four GPUs and four processes. The
program does not change.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from random import Random

from airflow.sdk import DAG, Param, task

from tony_provider.operators.tony import TonyTrainOperator

PYTHON_ENV = os.environ.get("TONY_EXAMPLES_PYTHON_ENV", sys.prefix)
ROWS = 4000


@task
def write_clicks(day: str) -> str:
    """Write the clicks of a day to the store as CSV, and return the URI of the file."""
    from tony_provider.hooks.tony import TonyHook

    random = Random(day)
    lines = []
    for _ in range(ROWS):
        features = [random.gauss(0, 1) for _ in range(8)]
        label = features[0] - 2 * features[1] + random.gauss(0, 0.1)
        lines.append(",".join(f"{value:.4f}" for value in (*features, label)))
    with TonyHook() as hook:
        uri = f"{hook.layout.root}/pytorch_ddp_daily/data/{day}.csv"
        hook.storage().write(uri, "\n".join(lines).encode(), overwrite=True)
    return uri


with DAG(
    "pytorch_ddp_daily",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
    params={
        "workers": Param(
            2,
            type="integer",
            minimum=1,
            maximum=16,
            title="Workers",
            description="Number of containers.",
            section="Training",
        ),
        "epochs": Param(
            20,
            type="integer",
            minimum=1,
            maximum=1000,
            title="Epochs",
            description="Number of passes through the clicks of the day.",
            section="Training",
        ),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):
    train = TonyTrainOperator(
        task_id="train",
        deferrable=True,
        queue_timeout=timedelta(hours=2),
        execution_timeout=timedelta(hours=12),
        job={
            "framework": "pytorch",
            # `stored:` restricts a file to the store. Otherwise the result of a task could name a file of the worker.
            "files": ["ddp/train.py", "stored:{{ ti.xcom_pull('write_clicks') }}::clicks.csv"],
            "python_env": PYTHON_ENV,
            "timeouts": {"stall": "1h"},  # restart the ranks if no epoch ends within an hour
            "tasks": {
                "worker": {
                    "instances": "{{ params.workers }}",
                    "memory": "2GiB",
                    "command": "python train.py --data clicks.csv --epochs {{ params.epochs }}",
                }
            },
        },
    )

    write_clicks("{{ macros.tony.run_date() | ds }}") >> train
