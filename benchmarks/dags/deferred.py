"""As many tasks as $BENCH_TASKS says, deferred until an application of the stand-in ends; each says when it went on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, BaseOperator

from benchmarks.job_trigger import trigger_of
from benchmarks.standin_cluster import application_id

TASKS = int(os.environ["BENCH_TASKS"])


class Waits(BaseOperator):
    """What the training operator does between its submission and its end."""

    def __init__(self, *, number: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.number = number

    def execute(self, context: Any) -> None:
        self.defer(trigger=trigger_of(application_id(self.number)), method_name="execute_complete")

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> float:
        return time.time()


with DAG("deferred", schedule=None):
    Waits.partial(task_id="wait").expand(number=list(range(TASKS)))
