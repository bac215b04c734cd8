"""`python -m tests.faults.airflow_task REQUEST RESULT`: one DAG run of one TonyTrainOperator, in this process.

REQUEST and RESULT are JSON files. The process stands for a worker's task process: what kills it kills the try.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG

from tests.airflow_dags import run
from tony_provider.operators.tony import TonyTrainOperator

DATE = datetime(2026, 1, 5, 6, tzinfo=UTC)  # of every run: a run that is there already is run again
RUN_ID = f"manual__{DATE.isoformat()}"
TASK = "train"


def main() -> None:
    request, result = map(Path, sys.argv[1:])
    wanted = json.loads(request.read_text())
    with DAG(wanted["dag_id"], schedule=None) as dag:
        TonyTrainOperator(
            task_id=TASK, job=wanted["job"], poll_interval=0.5, retry_delay=timedelta(0), **wanted["arguments"]
        )
    done = run(dag, logical_date=DATE, run_after=DATE)
    assert done.run_id == RUN_ID
    error = done.errors.get(TASK)
    told = {
        "state": done.state,
        "result": done.results.get(TASK),
        "error": f"{type(error).__name__}: {error}" if error else "",
    }
    draft = result.with_suffix(".draft")
    draft.write_text(json.dumps(told))
    draft.rename(result)


if __name__ == "__main__":
    main()
