"""The DAGs of ``make portal``: one for every day, one that is mapped, and one that trains until it is ended."""

import sys
from datetime import datetime
from typing import Any

from airflow.sdk import DAG

from tony_provider.operators.tony import TonyTrainOperator

FAILED, RESTARTED = 8, 10  # days of January
KIND = f"{{{{ {{{FAILED}: 'fails', {RESTARTED}: 'restarts'}}.get(logical_date.day, 'well') }}}}"
DAY = "{{ logical_date.day }}"


def job(day: str, kind: str, workers: int = 1) -> dict[str, Any]:
    worker = {"instances": workers, "memory": "192MiB", "command": f"python portal_fit.py {day} {kind}"}
    return {
        "framework": "standalone",
        "files": ["portal_fit.py"],
        "python_env": sys.prefix,
        "am": {"memory": "256MiB"},
        "tasks": {"worker": worker},
        "restart": {"backoff": "0s"},
    }


with DAG("portal_clicks", schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False) as clicks:
    TonyTrainOperator(task_id="train", job=job(DAY, KIND, workers=2))

with DAG("portal_sweep", schedule=None) as sweep:
    TonyTrainOperator.partial(task_id="train").expand(job=[job(str(day), "well") for day in range(3)])

with DAG("portal_long", schedule=None) as long:
    TonyTrainOperator(task_id="train", job=job("1", "long", workers=2))
