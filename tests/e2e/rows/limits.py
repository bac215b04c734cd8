"""Time that is over while a task is deferred: its application ends, and says why."""

from __future__ import annotations

from tests.e2e.field import Field
from tests.e2e.row import row


@row("execution-timeout", "execution_timeout of 25 s is over while deferred")
def execution_timeout(field: Field) -> str:
    training = field.one("defers_short", pace=1.0)
    training.task.until("deferred")
    training.until_step(1)
    field.expect(training.task.run.end() == "failed", f"the run is {training.task.run.describe()}")
    ended = training.until_gone(training.newest["id"])
    field.expect("execution_timeout" in ended["diagnostics"], f"the cluster says {ended['diagnostics']}")
    field.expect("AirflowTaskTimeout" in training.task.log(), "the task did not fail with AirflowTaskTimeout")
    return f"task failed with AirflowTaskTimeout; application: {ended['diagnostics'].strip()[:80]}"


@row("queue-timeout", "queue_timeout of 15 s is over while deferred")
def queue_timeout(field: Field) -> str:
    training = field.one("defers_large", pace=None)
    field.expect(training.task.run.end() == "failed", f"the run is {training.task.run.describe()}")
    ended = training.until_gone(training.newest["id"])
    said = training.task.log()
    field.expect("TonyQueueTimeout" in said, "the task did not fail with TonyQueueTimeout")
    field.expect(" of 4 " in said, "the task's log does not say how many containers it got")
    return f"task failed with TonyQueueTimeout; application {ended['finalStatus']}"
