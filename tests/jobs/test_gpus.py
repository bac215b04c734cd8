"""GPUs on nodes that do not isolate them. There is none here: YARN counts two on each node, and the names are ours."""

from __future__ import annotations

import os
import re
import signal
import uuid
from contextlib import suppress

import pytest

from tests.jobs.job import Job
from tests.jobs.places import Place
from tests.jobs.processes import below, every_process
from tests.kinds.table import Note
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState

SEES = "echo sees $CUDA_VISIBLE_DEVICES; sleep 1000"
TASKS = ("worker:0", "worker:1")


@pytest.fixture(params=["local", "yarn"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each backend in turn: here both are quick."""
    found: Place = request.getfixturevalue(request.param)
    return found


def sees(job: Job, task: str) -> list[str]:
    """What each start in its present container has seen."""
    if not job.task(task).container_id:
        return []
    return re.findall(r"^sees (\S+)$", job.output(task), re.MULTILINE)


def started(job: Job, task: str, times: int = 1) -> str:
    """Wait for so many starts in its present container; what the last one sees."""
    return until(lambda: seen[-1] if len(seen := sees(job, task)) >= times else None, job.describe)


def test_no_two_containers_of_a_node_see_the_same_gpu_also_after_a_kill(place: Place, note: Note) -> None:
    names = {f"GPU-{uuid.uuid4()}" for _ in range(4)}  # the nodes of the YARN here are one machine
    place.extra.update(deal_gpus=True, gpu_devices=",".join(sorted(names)), local_gpus=2)
    spec = {"tasks": {"worker": {"instances": 2, "gpus": 1, "memory": "128MiB", "command": SEES}}}

    jobs = [place.submit(spec) for _ in range(2)]

    for job in jobs:
        job.until(JobState.RUNNING)
    seen = {(job.id, task): started(job, task) for job in jobs for task in TASKS}
    assert set(seen.values()) == names

    hit, other = jobs
    container = hit.task("worker:0").container_id
    executor = next(each for each in hit.executors() if (container or "?").encode() in each.environment)
    os.kill(executor.pid, signal.SIGKILL)
    until(lambda: hit.task("worker:0").container_id not in ("", None, container), hit.describe)
    assert started(hit, "worker:0") == seen[hit.id, "worker:0"], "the only one that is free"

    container = hit.task("worker:1").container_id
    everyone = every_process()
    executor = next(each for each in hit.executors() if (container or "?").encode() in each.environment)
    for pid in below(executor.pid, everyone):
        with suppress(ProcessLookupError):  # the executor ends what is left when the first is gone
            os.kill(pid, signal.SIGKILL)
    assert started(hit, "worker:1", times=2) == seen[hit.id, "worker:1"]
    assert [sees(other, task) for task in TASKS] == [[seen[other.id, task]] for task in TASKS]
    note("2 jobs, 4 GPUs of a node", hit, "each container its own GPU", "an executor, a process")


def test_each_process_sees_its_own_mig_instance_by_names_that_stand_for_instances(place: Place) -> None:
    names = sorted(f"MIG-{uuid.uuid4()}" for _ in range(2))
    place.extra.update(deal_gpus=True, gpu_devices=",".join(names), local_gpus=2)
    say = "echo sees $CUDA_VISIBLE_DEVICES $LOCAL_RANK $LOCAL_WORLD_SIZE $TONY_LOCAL_RANK $RANK"
    worker = {"gpus": 2, "processes": "gpus", "memory": "128MiB", "command": say}

    job = place.run({"framework": "pytorch", "tasks": {"worker": worker}})

    job.succeeded()
    said = sorted(line.partition("sees ")[2] for line in job.log("worker:0").splitlines() if "sees " in line)
    assert said == [f"{name} 0 1 {rank} {rank}" for rank, name in enumerate(names)]


@pytest.mark.long
def test_a_node_with_too_few_gpus_fails_no_program(place: Place) -> None:
    place.extra.update(deal_gpus=True, gpu_devices=f"GPU-{uuid.uuid4()}", local_gpus=2)
    tasks = {"worker": {"gpus": 2, "memory": "128MiB", "command": "true"}}

    job = place.submit({"restart": {"budget": 0}, "tasks": tasks})

    said = job.failed()
    assert "could not prepare for its user process: the container was given 2 GPUs, but the node has 1: GPU-" in said
    assert "node_loss" in [event["event"] for event in job.events()]
