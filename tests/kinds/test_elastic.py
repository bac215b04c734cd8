"""Gangs that lose a node for a while: they go on with fewer, and with all again, to the same result."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.environments import SYSTEM_PYTHON
from tests.kinds.pace import Pace
from tests.kinds.table import Note
from tests.kinds.training import courses, result, spec, told, until_committed, until_generation, workers

ELASTIC: dict[str, Any] = {"memory": "3GiB", "min_instances": 2}  # one on a node: two nodes have no room for three
SLOW = 3.0  # seconds for a step: all steps take longer than a node needs to leave and to come back


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_shrinks_and_grows(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py", **ELASTIC)
    job = wide.submit(elastic("pytorch", "torch_ddp.py", tasks, pace))
    note("pytorch, elastic", job, *shrinks_and_grows(wide, job, pace))


@pytest.mark.long
def test_tensorflow_shrinks_and_grows(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers("exec python tensorflow_line.py", **ELASTIC)
    job = wide.submit(elastic("tensorflow", "tensorflow_line.py", tasks, pace, python_env=sys.prefix))
    note("tensorflow, elastic", job, *shrinks_and_grows(wide, job, pace))


def elastic(framework: str, program: str, tasks: dict[str, Any], pace: Pace, **more: Any) -> dict[str, Any]:
    timeouts = {"replacement": "5s", "grace": "2s"}
    return spec(framework, program, tasks, env=pace.env, timeouts=timeouts, **more)


def shrinks_and_grows(wide: YarnPlace, job: Job, pace: Pace) -> tuple[str, str]:
    """A node leaves and comes back; the result, and what left, for the table."""
    until_committed(job, 5)
    pace.set(SLOW)  # it must not be over before the node is gone, nor before it is back
    task, number = _beside_the_master(wide, job)
    try:
        wide.cluster.decommission(number, seconds=1)
        smaller = until_generation(job, 2)
        until_committed(job, (smaller.resumed_step or 0) + 5)
    finally:
        wide.cluster.decommission(seconds=0)
        wide.cluster.restart(f"nodemanager-{number}")
    until_generation(job, 3)
    pace.set(0)
    found = courses(result(job))
    assert [size for size, _ in found] == [3, 2, 3]
    assert job.status().generation == 3
    assert_nothing_left(wide, job)
    return told(found), f"the node of {task}"


def _beside_the_master(wide: YarnPlace, job: Job) -> tuple[str, int]:
    """A worker that is neither rank 0 nor on the application master's node, and the number of its NodeManager."""
    hosts = [manager.host for manager in wide.cluster.state.addresses.nodemanagers]
    master = wide.report(job.id)["amHostHttpAddress"].partition(":")[0]
    on = {name: str(job.task(name).node).partition(":")[0] for name in ("worker:1", "worker:2")}
    task = next(name for name, host in on.items() if host != master)
    return task, hosts.index(on[task]) + 1
