"""A small training by each framework on real YARN, to a result that can be told beforehand, and with a rank killed.

`make kinds` runs all of them. MXNet is not among them: its last release runs on no Python of today.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.conftest import Note
from tests.kinds.environments import SYSTEM_PYTHON, environment, has_torch, horovod_environment
from tests.kinds.programs import line
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState

PROGRAMS = Path(line.__file__).parent
SECONDS = 300.0


def spec(framework: str, program: str, tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    files = [str(PROGRAMS / name) for name in ("line.py", program)]
    return {"framework": framework, "files": files, "tasks": tasks, **more}


def workers(command: str, instances: int = 3, memory: str = "700MiB") -> dict[str, Any]:
    return {"worker": {"instances": instances, "memory": memory, "command": command}}


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


def kill(job: Job, program: str, rank: int) -> None:
    """SIGKILL to the user process of this rank."""
    mark = f"\0TONY_RANK={rank}\0".encode()
    (process,) = [each for each in job.processes() if each.words.endswith(program) and mark in each.environment]
    os.kill(process.pid, signal.SIGKILL)


def test_generic(yarn: YarnPlace, note: Note) -> None:
    tasks = workers("exec python3 generic_line.py", memory="128MiB")
    job = yarn.submit(spec("generic", "generic_line.py", tasks))
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 3
    assert_nothing_left(yarn, job)
    note("generic", job, "the line")


@pytest.fixture
def torch() -> None:
    """Debian's PyTorch. Looked for when it is needed: to import it takes seconds."""
    if not has_torch():
        pytest.skip("needs Debian's python3-torch: sh tests/packages.sh torch")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_goes_on_from_its_snapshot(wide: YarnPlace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py")
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env={"PACE": "0.5"}))
    until(lambda: (job.status().checkpoint_step or 0) >= 5 if has_status(job) else None, job.describe, SECONDS)
    kill(job, "torch_ddp.py", 1)
    left = result(job)
    assert_is_the_line(left)
    assert left["begun"] >= 5
    assert job.status().generation == 2
    assert_nothing_left(wide, job)
    note("pytorch, DDP", job, f"the line, from epoch {left['begun']}", "rank 1")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_with_several_processes_in_each_container(wide: YarnPlace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py", instances=2, memory="1200MiB")
    tasks["worker"]["processes"] = 2
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env={"PACE": "0.5"}))
    until(lambda: (job.status().checkpoint_step or 0) >= 5 if has_status(job) else None, job.describe, SECONDS)
    kill(job, "torch_ddp.py", 3)
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 4
    assert left["begun"] >= 5
    assert job.status().generation == 2
    assert_nothing_left(wide, job)
    note("pytorch, 2 processes each", job, f"the line, from epoch {left['begun']}", "rank 3")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_torchrun_needs_no_arguments(wide: YarnPlace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torchrun.py --nproc_per_node=2 torch_ddp.py", instances=2, memory="1200MiB")
    job_spec = spec("pytorch", "torch_ddp.py", tasks)
    job = wide.submit({**job_spec, "files": [*job_spec["files"], str(PROGRAMS / "torchrun.py")]})
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 4
    note("pytorch, torchrun, 2 processes each", job, "the line")


@pytest.mark.long
def test_jax_initializes_without_arguments(wide: YarnPlace, note: Note) -> None:
    job = wide.submit(spec("jax", "jax_line.py", workers("exec python jax_line.py"), python_env=str(environment())))
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 3
    assert_nothing_left(wide, job)
    note("jax", job, "the line")


@pytest.mark.long
def test_xgboost_meets_again_after_a_rank_has_died(wide: YarnPlace, note: Note) -> None:
    tasks = workers("exec python xgboost_line.py")
    more = {"python_env": str(environment()), "env": {"PACE": "3"}}
    job = wide.submit(spec("xgboost", "xgboost_line.py", tasks, **more))
    job.until(JobState.RUNNING)
    job.until_said("worker:1", "first meeting of 3")
    kill(job, "xgboost_line.py", 1)
    left = result(job)
    assert job.status().generation == 2
    assert (left["world_size"], left["rank"], left["same"]) == (3, 0, True)
    assert left["error"] < 0.05
    assert_nothing_left(wide, job)
    note("xgboost", job, f"all points within {left['error']:.3f}", "rank 1")


@pytest.mark.long
@pytest.mark.timeout(1500)  # with Horovod's build
@pytest.mark.usefixtures("torch")
def test_horovod_needs_no_horovodrun(wide: YarnPlace, note: Note) -> None:
    tasks = workers("exec python horovod_line.py")
    job = wide.submit(spec("horovod", "horovod_line.py", tasks, python_env=str(horovod_environment())))
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 3
    assert_nothing_left(wide, job)
    note("horovod", job, "the line")


@pytest.mark.long
def test_ray_has_a_node_in_each_container(wide: YarnPlace, note: Note) -> None:
    tasks = {
        "chief": {"memory": "2GiB", "command": "python ray_line.py"},
        "worker": {"instances": 2, "memory": "2GiB"},
    }
    job = wide.submit(spec("ray", "ray_line.py", tasks, python_env=str(environment())))
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 3
    assert_nothing_left(wide, job)
    note("ray", job, "the line")


def has_status(job: Job) -> bool:
    return job.hook.job_status(job.identity, job.id) is not None
