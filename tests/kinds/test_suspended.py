"""Gangs that are suspended while they train: to the result of those that nobody has disturbed."""

from __future__ import annotations

import sys

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.environments import SYSTEM_PYTHON
from tests.kinds.pace import Pace
from tests.kinds.table import Note
from tests.kinds.training import courses, result, spec, told, until_committed, until_generation, until_it_is, workers
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_is_suspended(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py", instances=2)
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env=pace.env, timeouts={"grace": "2s"}))
    note("pytorch, suspended", job, *suspended_and_resumed(wide, job, pace))


@pytest.mark.long
def test_tensorflow_is_suspended(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers("exec python tensorflow_line.py", instances=2, memory="1800MiB")
    described = spec("tensorflow", "tensorflow_line.py", tasks, env=pace.env, timeouts={"grace": "2s"})
    job = wide.submit({**described, "python_env": sys.prefix})
    note("tensorflow, suspended", job, *suspended_and_resumed(wide, job, pace))


def suspended_and_resumed(wide: YarnPlace, job: Job, pace: Pace) -> tuple[str, str]:
    """All containers but the master's are given back meanwhile; the result, and what was done."""
    until_committed(job, 5)
    job.hook.control(job.id, "suspend", {"reason": "the day belongs to others"})
    status = until_it_is(job, "suspended", lambda status: status.state is JobState.SUSPENDED)
    saved = status.checkpoint_step or 0
    assert saved >= 5
    until(lambda: wide.report(job.id)["runningContainers"] == 1, job.describe)
    pace.set(0)
    job.hook.control(job.id, "resume", {"reason": "the night is free"})
    assert until_generation(job, 2).resumed_step == saved
    left = result(job)
    assert left["begun"] == saved
    found = courses(left)
    assert [size for size, _ in found] == [2]
    assert_nothing_left(wide, job)
    return told(found), f"suspended after step {saved}, and resumed"
