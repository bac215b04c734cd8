"""A small training by each framework on real YARN, to a result that can be told beforehand, and with a rank killed.

`make kinds` runs all of them. MXNet is not among them: its last release runs on no Python of today.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.environments import AS_ROOT, SYSTEM_PYTHON, environment, horovod_environment
from tests.kinds.pace import Pace
from tests.kinds.table import Note
from tests.kinds.training import (
    assert_is_the_line,
    kill,
    result,
    spec,
    until_committed,
    until_generation,
    workers,
)
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState


def test_generic(yarn: YarnPlace, note: Note) -> None:
    tasks = workers("exec python3 generic_line.py", memory="128MiB")
    job = yarn.submit(spec("generic", "generic_line.py", tasks))
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == 3
    assert_nothing_left(yarn, job)
    note("generic", job, "the line")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_goes_on_from_its_snapshot(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py")
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env=pace.env))
    left = killed_in_the_middle(wide, job, "torch_ddp.py", pace)
    note("pytorch, DDP", job, f"the line, from epoch {left['begun']}", "rank 1")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_pytorch_with_several_processes_in_each_container(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_ddp.py", instances=2, memory="1200MiB", processes=2)
    job = wide.submit(spec("pytorch", "torch_ddp.py", tasks, env=pace.env))
    until_committed(job, 5)
    kill(job, "torch_ddp.py", "worker:1", TONY_LOCAL_RANK="1")
    left = goes_on(wide, job, pace, world_size=4)
    note("pytorch, 2 processes each", job, f"the line, from epoch {left['begun']}", "rank 3")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_torchrun_needs_no_arguments(wide: YarnPlace, pace: Pace, note: Note) -> None:
    """The program knows nothing of the job, and saves where it is."""
    there = 'cd "$TONY_CHECKPOINT_DIR" && unset TONY_CHECKPOINT_DIR'
    command = f'{there} && exec {SYSTEM_PYTHON} "$OLDPWD/torchrun.py" --nproc_per_node=2 "$OLDPWD/torch_ddp.py"'
    tasks = workers(command, instances=2, memory="1200MiB")
    job = wide.submit(spec("pytorch", "torch_ddp.py torchrun.py", tasks, env=pace.env))
    until_committed(job, 5)
    kill(job, "torch_ddp.py", "worker:1", LOCAL_RANK="1")
    left = goes_on(wide, job, pace, world_size=4)
    note("pytorch, torchrun, 2 processes each", job, f"the line, from epoch {left['begun']}", "rank 3")


@pytest.mark.long
def test_jax_initializes_without_arguments(wide: YarnPlace, pace: Pace, note: Note) -> None:
    programs = "jax_line.py numpy_snapshot.py"
    more = {"python_env": str(environment()), "env": pace.env}
    job = wide.submit(spec("jax", programs, workers("exec python jax_line.py"), **more))
    left = killed_in_the_middle(wide, job, "jax_line.py", pace)
    note("jax", job, f"the line, from step {left['begun']}", "rank 1")


@pytest.mark.long
def test_a_rank_of_jax_that_raises_does_not_wait_for_the_others(wide: YarnPlace, note: Note) -> None:
    """JAX's exit handler would wait for them for five minutes."""
    more = {"python_env": str(environment())}
    job = wide.submit(spec("jax", "jax_raises.py", workers("exec python jax_raises.py"), **more))
    job.end(120.0)
    job.succeeded()
    assert job.status().generation == 2
    assert "worker:1" in restart_reason(job)
    assert "ValueError: a bad sample" in next(event["message"] for event in job.events() if event["event"] == "failed")
    assert_nothing_left(wide, job)
    note("jax", job, "all ranks, after a restart", "rank 1, by an exception")


@pytest.mark.long
def test_xgboost_meets_again_after_a_rank_has_died(wide: YarnPlace, pace: Pace, note: Note) -> None:
    pace.set(3)
    tasks = workers("exec python xgboost_line.py")
    more = {"python_env": str(environment()), "env": pace.env}
    job = wide.submit(spec("xgboost", "xgboost_line.py", tasks, **more))
    job.until(JobState.RUNNING)
    job.until_said("worker:1", "first meeting of 3")
    kill(job, "xgboost_line.py", "worker:1")
    pace.set(0)
    left = result(job)
    assert job.status().generation == 2
    assert (left["world_size"], left["rank"], left["same"]) == (3, 0, True)
    assert left["error"] < 0.05
    assert_nothing_left(wide, job)
    note("xgboost", job, f"all points within {left['error']:.3f}", "rank 1")


@pytest.mark.long
@pytest.mark.timeout(1500)  # with Horovod's build
@pytest.mark.parametrize("program", ["horovod_line.py", "horovod_elastic.py"])
@pytest.mark.usefixtures("torch")
def test_horovod_needs_no_horovodrun(program: str, wide: YarnPlace, pace: Pace, note: Note) -> None:
    """Programs for its elastic driver run, too."""
    tasks = workers(f"exec python {program}")
    more = {"python_env": str(horovod_environment()), "env": pace.env}
    job = wide.submit(spec("horovod", program, tasks, **more))
    left = killed_in_the_middle(wide, job, program, pace)
    note(f"horovod, {program}", job, f"the line, from epoch {left['begun']}", "rank 1")


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_horovod_starts_again_when_its_rendezvous_has_died(wide: YarnPlace, pace: Pace, note: Note) -> None:
    more = {"python_env": str(horovod_environment()), "env": pace.env}
    job = wide.submit(spec("horovod", "horovod_line.py", workers("exec python horovod_line.py"), **more))
    until_committed(job, 5)
    kill(job, "tony_horovod", "worker:0")
    left = goes_on(wide, job, pace, world_size=3)
    assert "Horovod's rendezvous (a helper process) was killed by SIGKILL" in restart_reason(job)
    note("horovod", job, f"the line, from epoch {left['begun']}", "the rendezvous")


def mpi_tasks(command: str) -> dict[str, Any]:
    chief = {"memory": "700MiB", "command": command}
    return {"chief": chief, "worker": {"instances": 2, "memory": "700MiB"}}


@pytest.mark.long
@pytest.mark.usefixtures("mpi")
def test_mpirun_needs_no_ssh(wide: YarnPlace, pace: Pace, note: Note) -> None:
    tasks = mpi_tasks(f"mpirun.openmpi tony-here {SYSTEM_PYTHON} mpi_line.py")
    job = wide.submit(spec("mpi", "mpi_line.py numpy_snapshot.py", tasks, env={**pace.env, **AS_ROOT}))
    left = killed_in_the_middle(wide, job, "mpi_line.py", pace)
    assert left["places"] == ["chief:0", "worker:0", "worker:1"]
    note("mpi, Open MPI", job, f"the line, from step {left['begun']}", "rank 2")


@pytest.mark.long
@pytest.mark.usefixtures("mpi")
def test_mpich_s_mpirun_needs_no_ssh_either(wide: YarnPlace, note: Note) -> None:
    command = "mpirun.mpich tony-here sh -c 'echo \"rank $PMI_RANK of $PMI_SIZE in $TONY_TASK_TYPE:$TONY_TASK_INDEX\"'"
    job = wide.run(spec("mpi", "", mpi_tasks(command)))
    job.succeeded()
    assert sorted(line for line in job.log("chief:0").splitlines() if line.startswith("rank")) == [
        "rank 0 of 3 in chief:0",
        "rank 1 of 3 in worker:0",
        "rank 2 of 3 in worker:1",
    ]
    assert_nothing_left(wide, job)
    note("mpi, MPICH", job, "three ranks")


def killed_in_the_middle(wide: YarnPlace, job: Job, program: str, pace: Pace) -> dict[str, Any]:
    """What is left by three ranks of which one was killed."""
    until_committed(job, 5)
    kill(job, program, "worker:1")
    return goes_on(wide, job, pace, world_size=3)


def goes_on(wide: YarnPlace, job: Job, pace: Pace, world_size: int) -> dict[str, Any]:
    """What is left when all have gone on from the checkpoint, once."""
    until_generation(job, 2)
    pace.set(0)
    left = result(job)
    assert_is_the_line(left)
    assert left["world_size"] == world_size
    assert left["begun"] >= 5
    assert job.status().generation == 2
    assert_nothing_left(wide, job)
    return left


RAY = {
    "chief": {"memory": "2GiB", "command": "python ray_line.py"},
    "worker": {"instances": 2, "memory": "2GiB"},
}


def submit_ray(wide: YarnPlace, pace: Pace) -> Job:
    more = {"python_env": str(environment()), "env": pace.env}
    return wide.submit(spec("ray", "ray_line.py numpy_snapshot.py", RAY, **more))


@pytest.mark.long
def test_ray_outlives_a_node(wide: YarnPlace, pace: Pace, note: Note) -> None:
    """It does the lost node's work elsewhere, until a new one has joined."""
    job = submit_ray(wide, pace)
    until_committed(job, 5)
    start = job.task("worker:1").start
    kill(job, "raylet", "worker:1")
    until(lambda: job.task("worker:1").start > start, job.describe)
    pace.set(0)
    left = result(job)
    assert_is_the_line(left)
    assert (left["world_size"], left["used"], left["begun"], left["safe"]) == (3, 3, 0, True)
    assert job.status().generation == 1
    assert_nothing_left(wide, job)
    note("ray", job, "the line, without a restart of the driver", "a worker's raylet")


@pytest.mark.long
def test_ray_goes_on_from_the_snapshot_of_its_driver(wide: YarnPlace, pace: Pace, note: Note) -> None:
    job = submit_ray(wide, pace)
    until_committed(job, 5)
    kill(job, "ray_line.py", "chief:0")
    left = goes_on(wide, job, pace, world_size=3)
    note("ray", job, f"the line, from step {left['begun']}", "the driver")


@pytest.mark.long
def test_ray_starts_again_when_its_head_has_died(wide: YarnPlace, pace: Pace, note: Note) -> None:
    """The driver itself would wait for the head for a minute."""
    job = submit_ray(wide, pace)
    until_committed(job, 5)
    kill(job, "gcs_server", "chief:0")
    left = goes_on(wide, job, pace, world_size=3)
    assert "Ray's head (a helper process) ended with exit code 1" in restart_reason(job)
    note("ray", job, f"the line, from step {left['begun']}", "the head's GCS server")


def restart_reason(job: Job) -> str:
    return str(next(event["message"] for event in job.events() if event["event"] == "restarting"))
