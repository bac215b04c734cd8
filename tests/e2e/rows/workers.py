"""What happens to the processes of a task whose worker waits: the next try attaches to the training."""

from __future__ import annotations

import signal

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.training import Training
from tests.hadoop.processes import Process, parent_of
from tests.waiting import until


@row("task-killed", "kill -9 of the task process")
def task_killed(field: Field) -> str:
    training = _waiting(field, "waits")
    _process(training).signal(signal.SIGKILL)
    return _attached(field, training)


@row("supervisor-killed", "kill -9 of the task's supervisor")
def supervisor_killed(field: Field) -> str:
    """Nobody tells Airflow: it misses the heartbeats. The task's process is left alone, and must not be in the way."""
    training = _waiting(field, "waits")
    task = _process(training)
    _supervisor(task).signal(signal.SIGKILL)
    field.at_end(lambda: task.signal(signal.SIGKILL))
    seen = _attached(field, training)
    gone = task.wait_gone(0.0)
    field.expect(gone, "the first try's process is still there, after the second try has ended")
    return seen


@row("task-terminated", "SIGTERM of the task process, on_kill_action=kill")
def task_terminated(field: Field) -> str:
    """A worker that is shut down does so: the application ends, and the next try goes on in one of its own."""
    training = _waiting(field, "waits", applications=2)
    first = training.newest["id"]
    _process(training).signal(signal.SIGTERM)
    ended = training.until_gone(first)
    field.expect(ended["finalStatus"] == "KILLED", f"the cluster says {ended['finalStatus']}")
    training.task.until("running", tries=2)
    training.hurry()
    _ended(field, training)
    begun = training.begun_at()
    field.expect(len(begun) == 2 and begun[1] >= 10, f"its user processes began at the steps {begun}")
    return f"first try failed, its application killed; the second went on from step {begun[-1]}"


@row("task-terminated-keep", "SIGTERM of the task process, on_kill_action=keep")
def task_terminated_keep(field: Field) -> str:
    training = _waiting(field, "waits_keep")
    _process(training).signal(signal.SIGTERM)
    return _attached(field, training)


def _waiting(field: Field, dag_id: str, applications: int = 1) -> Training:
    training = field.one(dag_id, applications=applications, steps=2000)  # it must outlast the heartbeat's limit
    training.task.until("running")
    training.until_committed(10)
    return training


def _attached(field: Field, training: Training) -> str:
    """Wait for the second try, let it end, and see that it has trained nothing anew."""
    task = training.task
    task.until("running", tries=2)
    until(lambda: f"Attaching to {training.newest['id']}" in task.log(2), lambda: f"to attach: {task.log(2)}", 60, 1)
    training.hurry()
    _ended(field, training)
    begun = training.begun_at()
    field.expect(begun == [0], f"its user processes began at the steps {begun}")
    return "second try attached to the one application, and succeeded"


def _ended(field: Field, training: Training) -> None:
    state = training.task.run.end()
    states = [str(each["state"]) for each in training.task.tries()]
    field.expect(state == "success", f"the run is {training.task.run.describe()}")
    field.expect(len(states) == 2 and states[0] != "success", f"its tries ended {states}")


def _process(training: Training) -> Process:
    pid = int(training.task.facts()["pid"])
    process = Process.of(pid)
    assert process is not None, f"the task's process {pid} is gone"
    return process


def _supervisor(task: Process) -> Process:
    parent = parent_of(task.pid)
    process = Process.of(parent) if parent is not None else None
    assert process is not None, f"process {task.pid} has no parent"
    return process
