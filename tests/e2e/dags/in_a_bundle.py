"""A training whose script lies in a folder beside the DAG file."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from tony_provider.operators.tony import TonyTrainOperator


def training(task_id: str) -> TonyTrainOperator:
    return TonyTrainOperator(
        task_id=task_id,
        job={
            "framework": "standalone",
            "am": {"memory": "256MiB"},
            "tags": [os.environ["E2E_TAG"]],
            "python_env": os.environ.get("E2E_PYTHON_ENV", sys.prefix),
            "files": ["scripts/training.py", "scripts/diary.py"],
            "env": {
                "FAULTS_DIR": os.environ["E2E_DIARIES"] + "/{{ dag.dag_id }}/{{ run_id }}/{{ ti.task_id }}",
                "FAULTS_STEPS": "400",
                "FAULTS_EVERY": "10",
                "PYTHONPATH": ".",
            },
            "restart": {"budget": 0},
            "timeouts": {"grace": "2s"},
            "tasks": {"worker": {"memory": "128MiB", "command": "mkdir -p $FAULTS_DIR && exec python training.py"}},
        },
        deferrable=True,
        poll_interval=1,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )


with DAG(f"bundle_{Path(__file__).parent.name}", schedule=None):
    training("train") >> training("train_again")
