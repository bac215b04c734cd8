"""What the trainings of these DAGs have in common."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

from airflow.sdk import Param

# A directory of its own for each training; its program writes there what it does, and reads there how fast to do it.
DIARY = (
    os.environ["E2E_DIARIES"] + "/{{ dag.dag_id }}/{{ run_id }}/{{ ti.task_id }}"
    "{{ '' if ti.map_index < 0 else ti.map_index }}"
)
PARAMS: dict[str, Any] = {
    "steps": Param(400, type="integer", minimum=1, title="Steps", section="Training"),
    "every": Param(10, type="integer", minimum=1, title="Steps from one checkpoint to the next", section="Training"),
}
ONCE = {"retries": 0}
TWICE = {"retries": 1, "retry_delay": timedelta(seconds=1)}
FOUR_TIMES = {**TWICE, "retries": 3}


def job(**changes: Any) -> dict[str, Any]:
    return {
        "framework": "standalone",
        "am": {"memory": "256MiB"},
        "tags": [os.environ["E2E_TAG"]],
        "python_env": os.environ.get("E2E_PYTHON_ENV", sys.prefix),
        "files": ["programs/count.py", "programs/diary.py"],
        "env": {
            "FAULTS_DIR": DIARY,
            "FAULTS_STEPS": "{{ params.steps }}",
            "FAULTS_EVERY": "{{ params.every }}",
            "PYTHONPATH": ".",
        },
        "restart": {"budget": 0},
        "timeouts": {"grace": "2s"},
        "tasks": {"worker": {"memory": "128MiB", "command": "mkdir -p $FAULTS_DIR && exec python count.py"}},
        **changes,
    }
