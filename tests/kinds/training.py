"""What all rows have in common: the job, what it must have trained, and what is done to it meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.processes import Seen
from tests.kinds.programs import line
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobStatus

PROGRAMS = Path(line.__file__).parent
SECONDS = 300.0


def spec(framework: str, programs: str, tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A job. ``programs``: names of files, with a blank between them."""
    files = [str(PROGRAMS / name) for name in ("line.py", *programs.split())]
    return {"framework": framework, "files": files, "tasks": tasks, **more}


def workers(command: str, instances: int = 3, memory: str = "700MiB", **more: Any) -> dict[str, Any]:
    return {"worker": {"instances": instances, "memory": memory, "command": command, **more}}


def result(job: Job) -> dict[str, Any]:
    """What rank 0 left, once the job has succeeded."""
    job.end(SECONDS)
    job.succeeded()
    left: dict[str, Any] = json.loads(job.read("return_value.json"))
    return left


def assert_is_the_line(left: dict[str, Any]) -> None:
    slope, offset = line.expected()
    assert left["slope"] == pytest.approx(slope, rel=1e-9)
    assert left["offset"] == pytest.approx(offset, rel=1e-9)


def courses(left: dict[str, Any]) -> list[tuple[int, int]]:
    """By how many ranks the steps were done, and how many steps in a row; each was done once, to the same line."""
    assert_is_the_line(left)
    assert len(left["sizes"]) == line.STEPS
    return [(size, len(list(steps))) for size, steps in groupby(left["sizes"])]


def told(found: list[tuple[int, int]]) -> str:
    """Courses, for the table."""
    return f"the line: {', '.join(f'{steps} steps by {size}' for size, steps in found)}"


def until_it_is(job: Job, what: str, is_so: Callable[[JobStatus], bool]) -> JobStatus:
    """Wait until the job's status shows it; the job must not end before."""

    def look() -> JobStatus | None:
        status = job.hook.job_status(job.identity, job.id)
        if status is not None and is_so(status):
            return status
        assert not job.application().is_final, f"it ended, and was never {what}\n{job.describe()}"
        return None

    return until(look, lambda: f"{what}\n{job.describe()}", SECONDS)


def until_committed(job: Job, step: int) -> int:
    """Wait for a checkpoint of this step or a later one on the store; its step."""
    status = until_it_is(job, f"at a checkpoint of step {step}", lambda status: (status.checkpoint_step or 0) >= step)
    return status.checkpoint_step or 0


def until_generation(job: Job, number: int) -> JobStatus:
    return until_it_is(job, f"in generation {number}", lambda status: status.generation >= number)


def kill(job: Job, program: str, task: str, **env: str) -> None:
    """SIGKILL to one process of a task, such as worker:1, that has these variables, too.

    ``program``: a Python file, or what else it runs.
    """
    task_type, _, index = task.partition(":")
    env |= {"TONY_TASK_TYPE": task_type, "TONY_TASK_INDEX": index}
    found = [each for each in job.processes() if _runs(program, each) and _has(env, each)]
    assert len(found) == 1, found
    os.kill(found[0].pid, signal.SIGKILL)


def _runs(program: str, process: Seen) -> bool:
    return process.program == program or (process.program.startswith("python") and process.words.endswith(program))


def _has(env: dict[str, str], process: Seen) -> bool:
    variables = process.environment.split(b"\0")
    return all(f"{name}={value}".encode() in variables for name, value in env.items())
