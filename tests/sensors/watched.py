"""A DAG of a training's task and a sensor. The trainings themselves are begun by the tests, as that task would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from tests.airflow_dags import Run, run
from tests.operators.jobs import DEADLINE, job
from tests.operators.trainings import DATES, RUN_ID
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState
from tony_provider.sensors.tony import TonySensor

DAG_ID = "sensor_test"
ONCE = {"restart": {"budget": 0}}
MODES: list[Any] = [
    {"deferrable": True},
    pytest.param({"mode": "poke"}, marks=pytest.mark.long),
    pytest.param({"mode": "reschedule"}, marks=pytest.mark.long),
]


class Train(BaseOperator):
    """Stands for the training's task: what it does is already done."""

    def execute(self, context: Any) -> None:
        pass


def watch(kind: type[TonySensor], *, train: BaseOperator | None = None, **arguments: Any) -> Run:
    """The sensor ``watch`` runs first, while ``train`` waits for it; or after ``train``, where that is given."""
    with DAG(DAG_ID, schedule=None) as dag:
        task = train or Train(task_id="train")
        options = {"deferrable": False, "poke_interval": 0.3, "trigger_rule": "all_done", **arguments}
        sensor = kind(task_id="watch", **options)
        if train is None:
            task.trigger_rule = "all_done"  # type: ignore[assignment]
            sensor >> task
        else:
            dag.add_task(task)
            task >> sensor
    return run(dag, **DATES)


def identity(hook: TonyHook) -> Identity:
    return hook.identity(dag_id=DAG_ID, run_id=RUN_ID, task_id="train")


def submit(hook: TonyHook, command: str, **more: Any) -> str:
    """A try of the training's task begins; the application's id."""
    return hook.submit(SubmissionRequest(parse_job(job(command, **{**ONCE, **more})), identity(hook))).application_id


def until_job(hook: TonyHook, application_id: str, state: JobState) -> JobStatus:
    def look() -> JobStatus | None:
        status = hook.job_status(identity(hook), application_id)
        return status if status is not None and status.state is state else None

    return until(look, f"{application_id} is {state.value}", DEADLINE)


def until_ended(hook: TonyHook, application_id: str) -> None:
    def look() -> bool:
        application = hook.application(application_id)
        return application is None or application.is_final

    until(look, f"the end of {application_id}", DEADLINE)


def is_told_to_run(hook: TonyHook, application_id: str) -> bool:
    """Of each task: the job runs as soon as all executors are there, which tell of their processes later."""
    status = hook.job_status(identity(hook), application_id)
    return status is not None and all(
        task.state is TaskState.RUNNING and task.heartbeat_ms is not None for task in status.tasks
    )


@contextmanager
def running(hook: TonyHook, marker_path: Path, command: str, **more: Any) -> Iterator[str]:
    """Its user process runs, and the status says so, and when its tasks were heard of; killed at the end."""
    application_id = submit(hook, command, **more)
    try:
        until(marker_path.exists, "the user process", DEADLINE)
        until_job(hook, application_id, JobState.RUNNING)
        until(lambda: is_told_to_run(hook, application_id), "a heartbeat of each task that runs", DEADLINE)
        yield application_id
    finally:
        hook.kill(application_id, "the test is over")
