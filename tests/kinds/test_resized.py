"""Gangs that are resized while they train, on a queue with others: to the result of those that nobody has disturbed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.jobs.busy import fill
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.environments import SYSTEM_PYTHON
from tests.kinds.pace import Pace
from tests.kinds.table import Note
from tests.kinds.training import (
    courses,
    result,
    spec,
    told,
    until_committed,
    until_generation,
    until_it_is,
    workers,
)

SLOW = 1.5  # seconds that a step takes
SIZED: dict[str, Any] = {"instances": 2, "max_instances": 4}


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_is_resized(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py", **SIZED)
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env=pace.env, timeouts={"grace": "2s"}))
    note("pytorch, resized", job, *larger_and_smaller(wide, job, pace))


@pytest.mark.long
def test_tensorflow_is_resized(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers("exec python tensorflow_line.py", memory="1800MiB", **SIZED)
    described = spec("tensorflow", "tensorflow_line.py", tasks, env=pace.env, timeouts={"grace": "2s"})
    job = wide.submit({**described, "python_env": sys.prefix})
    note("tensorflow, resized", job, *larger_and_smaller(wide, job, pace))


def larger_and_smaller(wide: YarnPlace, job: Job, pace: Pace) -> tuple[str, str]:
    """From two to four, once somebody else has left the queue, and back; the result, and what was done."""
    until_committed(job, 5)
    pace.set(SLOW)  # it must not be over before it has had every size
    others = fill(wide, 700)
    job.handle.resize({"worker": 4}, "as soon as there is room")
    until_it_is(job, "waiting", lambda status: "growing to 4 workers: waiting for 2 containers" in status.message)
    others.hook.kill(others.id, "the job needs it")
    larger = until_generation(job, 2)
    until_committed(job, (larger.resumed_step or 0) + 3)
    job.handle.resize({"worker": 2}, "others need it")
    smaller = until_generation(job, 3)
    until_committed(job, (smaller.resumed_step or 0) + 3)
    pace.set(0)
    found = courses(result(job))
    assert [size for size, _ in found] == [2, 4, 2]
    others.end()
    assert_nothing_left(wide, job)
    return told(found), "2 -> 4 -> 2 workers, by `airflow tony resize`"
