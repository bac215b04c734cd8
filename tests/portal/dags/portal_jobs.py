"""The DAGs of ``make portal``: one for every day, one that is mapped, and some whose jobs end in other ways."""

import sys
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.publishing import publish_model

# Days of January with a program of their own; what the kinds are is told in portal_fit.py.
KINDS = {4: "fails", 6: "restarts", 9: "fails_once"}
KIND = f"{{{{ {KINDS}.get(logical_date.day, 'well') }}}}"
DAY = "{{ logical_date.day }}"
# In the past: only backfills make runs.
DATES: dict[str, Any] = {"start_date": datetime(2026, 1, 1), "end_date": datetime(2026, 1, 31), "catchup": False}
DEFERRED: dict[str, Any] = {"deferrable": True, "poll_interval": 1}
ODD = ("markup", "many", "not_finite", "silent")


def job(day: str, kind: str, workers: int = 1, memory: str = "192MiB") -> dict[str, Any]:
    return {
        "framework": "standalone",
        "files": ["portal_fit.py"],
        "python_env": sys.prefix,
        "am": {"memory": "256MiB"},
        "tasks": {"worker": {"instances": workers, "memory": memory, "command": f"python portal_fit.py {day} {kind}"}},
        "restart": {"budget": 1, "backoff": "0s"},
        "timeouts": {"grace": "2s"},
    }


with DAG("portal_clicks", schedule="@daily", **DATES):
    TonyTrainOperator(
        task_id="train", job=job(DAY, KIND, workers=2), retries=1, retry_delay=timedelta(seconds=1), **DEFERRED
    )

with DAG("portal_sweep", schedule=None):
    TonyTrainOperator.partial(task_id="train", **DEFERRED).expand(job=[job(str(day), "well") for day in range(6)])

with DAG("portal_odd", schedule=None):
    TonyTrainOperator.partial(task_id="train", **DEFERRED).expand(job=[job("1", kind) for kind in ODD])

with DAG("portal_long", schedule=None):
    TonyTrainOperator(task_id="train", job=job("1", "long", workers=2), **DEFERRED)

# Its worker type can be resized, and users act on it.
acted = job("1", "long") | {"framework": "generic"}
acted["tasks"]["worker"]["max_instances"] = 2
with DAG("portal_acted", schedule=None):
    TonyTrainOperator(task_id="train", job=acted, **DEFERRED)

# A job that the operator refuses before it submits anything.
refused = job("1", "well")
refused["tasks"]["worker"]["memory"] = "much"
with DAG("portal_refused", schedule=None):
    TonyTrainOperator(task_id="train", job=refused, **DEFERRED)

# No node has as much: its containers are never given.
with DAG("portal_large", schedule=None):
    TonyTrainOperator(task_id="train", job=job("1", "well", memory="3GiB", workers=4), queue_timeout=15, **DEFERRED)

# Trainings in a chain of models. Users correct the data, and repeat the runs.
MODELS = "portal_corrected/models"
corrected = job("1", "well")
corrected["inputs"] = {"rows": {"paths": ["hdfs:///user/alice/portal-rows/{{ logical_date | ds }}"], "deal": "none"}}
corrected["tasks"]["worker"]["command"] = "date +%N > $TONY_MODEL_DIR/weights"


@task
def publish(models: str, trained: Any) -> None:
    publish_model(models, trained)


with DAG("portal_corrected", schedule="@daily", default_args={"depends_on_past": True}, **DATES):
    newest = f"{{{{ macros.tony.newest_model('{MODELS}') }}}}"
    train = TonyTrainOperator(task_id="train", job=corrected, warm_start=newest, wait_for_downstream=True, **DEFERRED)
    publish(MODELS, train.output)
