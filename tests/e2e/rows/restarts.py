"""Airflow's own processes end and begin again: no training notices."""

from __future__ import annotations

import signal

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.training import Training


@row("triggerer-restarted", "triggerer restarted while deferred")
def triggerer_restarted(field: Field) -> str:
    training = _deferred(field)
    return _without(field, training, "triggerer", signal.SIGTERM)


@row("triggerer-killed", "triggerer kill -9 while deferred, and started again")
def triggerer_killed(field: Field) -> str:
    training = _deferred(field)
    return _without(field, training, "triggerer", signal.SIGKILL)


@row("scheduler-restarted", "scheduler restarted while deferred")
def scheduler_restarted(field: Field) -> str:
    training = _deferred(field)
    return _without(field, training, "scheduler", signal.SIGTERM)


@row("scheduler-killed", "scheduler kill -9 while a worker waits, and started again")
def scheduler_killed(field: Field) -> str:
    """Its workers live on, and it is a while until a next scheduler minds their tasks."""
    training = field.one("waits")
    training.task.until("running")
    return _without(field, training, "scheduler", signal.SIGKILL)


@row("api-server-restarted", "api-server restarted while deferred")
def api_server_restarted(field: Field) -> str:
    """While a worker waits it is another matter: Airflow ends its task when three heartbeats have failed."""
    training = _deferred(field)
    return _without(field, training, "api-server", signal.SIGTERM)


def _deferred(field: Field) -> Training:
    training = field.one("defers")
    training.task.until_watched()
    return training


def _without(field: Field, training: Training, name: str, number: signal.Signals) -> str:
    step = training.until_step(3).step or 0
    field.airflow.kill(name, number)
    training.until_step(step + 5)
    field.airflow.begin_again(name)
    training.until_step(step + 10)
    training.hurry()
    state = training.task.run.end()
    field.expect(state == "success", f"the run is {training.task.run.describe()}")
    begun = training.begun_at()
    field.expect(begun == [0], f"its user processes began at the steps {begun}")
    tries = len(training.task.tries())
    return f"trained on meanwhile; succeeded in try {tries}"
