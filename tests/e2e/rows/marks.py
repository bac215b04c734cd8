"""What people do to a task while it trains: they mark it, or clear it."""

from __future__ import annotations

import time

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.training import Training


@row("marked-failed-running", "marked failed while a worker waits")
def marked_failed_running(field: Field) -> str:
    training = field.one("waits")
    training.task.until("running")
    return _marked(field, training, "failed")


@row("marked-failed-deferred", "marked failed while deferred")
def marked_failed_deferred(field: Field) -> str:
    training = field.one("defers")
    training.task.until_watched()
    return _marked(field, training, "failed")


@row("marked-success-deferred", "marked success while deferred")
def marked_success_deferred(field: Field) -> str:
    training = field.one("defers")
    training.task.until_watched()
    return _marked(field, training, "success")


def _marked(field: Field, training: Training, state: str) -> str:
    training.until_step(3)
    marked = time.monotonic()
    training.task.mark(state)
    ended = training.until_gone(training.newest["id"])
    took = time.monotonic() - marked
    field.expect(training.task.run.end() == state, f"the run is {training.task.run.describe()}")
    field.expect(ended["finalStatus"] == "KILLED", f"the cluster says {ended['finalStatus']}")
    return f"application gone after {took:.1f} s: {_first_line(ended['diagnostics'])}"


@row("cleared-deferred", "cleared while deferred")
def cleared_deferred(field: Field) -> str:
    """The old application is ended by whoever comes first, its trigger or the new try, which then starts another."""
    training = field.one("defers", applications=2)
    training.task.until_watched()
    return _cleared(field, training, "deferred")


@row("cleared-running", "cleared while a worker waits")
def cleared_running(field: Field) -> str:
    training = field.one("waits", applications=2)
    training.task.until("running")
    return _cleared(field, training, "running")


def _cleared(field: Field, training: Training, state: str) -> str:
    training.until_committed(10)
    first = training.newest["id"]
    cleared = time.monotonic()
    training.task.run.clear()
    ended = training.until_gone(first)
    took = time.monotonic() - cleared
    training.task.until(state, tries=2)
    training.hurry()
    field.expect(training.task.run.end() == "success", f"the run is {training.task.run.describe()}")
    field.expect(ended["finalStatus"] == "KILLED", f"the cluster says of the first {ended['finalStatus']}")
    begun = training.begun_at()
    field.expect(len(begun) == 2 and begun[1] >= 10, f"its user processes began at the steps {begun}")
    said = f"{_first_line(ended['diagnostics'])}; the next went on from step {begun[-1]} and succeeded"
    return f"old application gone after {took:.1f} s: {said}"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
