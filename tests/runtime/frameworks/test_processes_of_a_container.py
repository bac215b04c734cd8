"""What the processes of containers that run several find, framework by framework."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.frameworks.base import TaskAddress, by_process, get_framework, task_environment
from tony_provider.runtime.jobspec.model import JobSpec, Role, ranks
from tony_provider.runtime.parsing.parse import parse_job

GANG: dict[str, dict[str, Any]] = {"worker": {"instances": 2, "processes": 2}, "chief": {}, "evaluator": {}}


def env_of(job: JobSpec, task_type: str, index: int, local_rank: int) -> dict[str, str]:
    return task_environment(job, cluster_of(job), task_type, index, local_rank=local_rank).env


def every_env(job: JobSpec) -> list[dict[str, str]]:
    """That of each process with a rank, in the order of their ranks."""
    tasks = [
        (name, index, local_rank)
        for name, task in job.tasks.items()
        for index in range(task.instances)
        for local_rank in range(task.process_count)
    ]
    found = [env for task in tasks if "TONY_RANK" in (env := env_of(job, *task))]
    return sorted(found, key=lambda env: int(env["TONY_RANK"]))


def column(envs: list[dict[str, str]], name: str) -> str:
    return " ".join(env[name] for env in envs)


def test_who_they_are_and_where() -> None:
    envs = every_env(job_of("generic", **GANG))
    assert column(envs, "TONY_RANK") == "0 1 2 3 4"
    assert column(envs, "TONY_TASK_TYPE") == "chief worker worker worker worker"
    assert column(envs, "TONY_TASK_INDEX") == "0 0 0 1 1"
    assert column(envs, "TONY_LOCAL_RANK") == "0 0 1 0 1"
    assert column(envs, "TONY_LOCAL_WORLD_SIZE") == "1 2 2 2 2"
    assert column(envs, "TONY_WORLD_SIZE") == "5 5 5 5 5"
    assert column(envs, "TONY_PORT") == "20002 20000 21000 20001 21001"
    assert {env["TONY_RENDEZVOUS"] for env in envs} == {"10.0.0.1:20002"}
    assert json.loads(envs[0]["TONY_CLUSTER_SPEC"]) == {
        "worker": ["10.0.0.1:20000", "10.0.0.1:21000", "10.0.0.1:20001", "10.0.0.1:21001"],
        "chief": ["10.0.0.1:20002"],
    }
    evaluator = env_of(job_of("generic", **GANG), "evaluator", 0, 0)
    assert (evaluator["TONY_LOCAL_RANK"], evaluator["TONY_LOCAL_WORLD_SIZE"]) == ("0", "1")


def test_pytorch() -> None:
    envs = every_env(job_of("pytorch", **GANG))
    assert column(envs, "RANK") == "0 1 2 3 4"
    assert column(envs, "LOCAL_RANK") == "0 0 1 0 1"
    assert column(envs, "LOCAL_WORLD_SIZE") == "1 2 2 2 2"
    assert column(envs, "GROUP_RANK") == "0 1 1 2 2"
    assert {env["GROUP_WORLD_SIZE"] for env in envs} == {"3"}
    assert {env["MASTER_PORT"] for env in envs} == {"20002"}


def test_torchrun_in_each_process_is_a_node_with_one() -> None:
    envs = every_env(job_of("pytorch", worker={"instances": 2, "processes": "gpus", "gpus": 4}))
    assert column(envs, "PET_NODE_RANK") == "0 1 2 3 4 5 6 7"
    assert {(env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) for env in envs} == {("8", "1")}


def test_horovod() -> None:
    envs = every_env(job_of("horovod", **GANG))
    assert column(envs, "HOROVOD_RANK") == "0 1 2 3 4"
    assert column(envs, "HOROVOD_LOCAL_RANK") == "0 0 1 0 1"
    assert column(envs, "HOROVOD_LOCAL_SIZE") == "1 2 2 2 2"
    assert column(envs, "HOROVOD_CROSS_RANK") == "0 1 0 2 1"
    assert column(envs, "HOROVOD_CROSS_SIZE") == "3 3 2 3 2"
    assert column(envs, "HOROVOD_HOSTNAME") == "10.0.0.1-0 10.0.0.1-1 10.0.0.1-1 10.0.0.1-2 10.0.0.1-2"


@pytest.mark.parametrize(
    ("processes", "gpus", "own"),
    [
        ("gpus", 4, ["0", "1", "2", "3"]),
        ("2", 4, ["0,1", "2,3"]),
        ("2", 5, ["0,1", "2,3"]),
        ("2", 1, ["0", "0"]),
        ("3", 2, ["0", "0", "1"]),
    ],
)
def test_jax_is_told_which_gpus_are_a_process_s_own(processes: str, gpus: int, own: list[str]) -> None:
    envs = every_env(job_of("jax", worker={"processes": processes, "gpus": gpus}))
    assert [env["JAX_LOCAL_DEVICE_IDS"] for env in envs] == own


def test_jax_leaves_devices_alone_where_there_is_nothing_to_share() -> None:
    for worker in ({"processes": 2}, {"gpus": 4}, {"processes": "gpus", "gpus": 1}):
        assert "JAX_LOCAL_DEVICE_IDS" not in env_of(job_of("jax", worker=worker), "worker", 0, 0)


def test_to_tensorflow_each_is_a_worker() -> None:
    job = job_of("tensorflow", chief={}, worker={"instances": 2, "processes": 2})
    found = json.loads(env_of(job, "worker", 1, 1)["TF_CONFIG"])
    assert found["task"] == {"type": "worker", "index": 3}
    assert found["cluster"]["worker"] == ["10.0.0.1:20001", "10.0.0.1:21001", "10.0.0.1:20002", "10.0.0.1:21002"]
    assert env_of(job, "worker", 1, 1)["TONY_PORT"] == "21002"


def test_with_one_process_each_the_addresses_are_the_tasks() -> None:
    job = job_of("pytorch", worker={"instances": 3, "processes": "gpus", "gpus": 1})
    assert by_process(job, cluster_of(job)) == cluster_of(job)


counts = st.integers(1, 3)
workers = st.fixed_dictionaries({"instances": counts, "processes": counts})


@given(
    types=st.dictionaries(st.sampled_from(["a", "b", "worker"]), workers, min_size=1),
    chief=st.none() | st.fixed_dictionaries({"processes": counts}),
    gone=st.sets(st.integers(0, 9)),
)
def test_ranks_go_on_over_the_processes_of_a_task(types: dict[str, Any], chief: Any, gone: set[int]) -> None:
    job = job_of("horovod", **types, **({"chief": chief} if chief else {}))
    whole = cluster_of(job)
    left = tuple(task for place, task in enumerate(whole.tasks) if place not in gone) or whole.tasks[:1]
    cluster = attrs.evolve(whole, tasks=left)  # as where the gang goes on smaller
    order = sorted(ranks(left).items(), key=lambda each: each[1])
    envs = [
        task_environment(job, cluster, *task, local_rank=local_rank).env
        for task, _ in order
        for local_rank in range(job.tasks[task[0]].process_count)
    ]
    size = str(len(envs))
    assert [env["TONY_RANK"] for env in envs] == [str(rank) for rank in range(len(envs))]
    assert {env["TONY_WORLD_SIZE"] for env in envs} == {size}
    assert len({env["TONY_PORT"] for env in envs}) == len(envs)
    assert envs[0]["TONY_RENDEZVOUS"].endswith(f":{envs[0]['TONY_PORT']}")
    for env in envs:
        host = [each for each in envs if each["HOROVOD_HOSTNAME"] == env["HOROVOD_HOSTNAME"]]
        assert [int(each["TONY_LOCAL_RANK"]) for each in host] == list(range(int(env["TONY_LOCAL_WORLD_SIZE"])))
        peers = [each for each in envs if each["TONY_LOCAL_RANK"] == env["TONY_LOCAL_RANK"]]
        assert peers.index(env) == int(env["HOROVOD_CROSS_RANK"])
        assert len(peers) == int(env["HOROVOD_CROSS_SIZE"])


@pytest.mark.parametrize("name", ["pytorch", "jax", "xgboost", "horovod", "generic", "standalone"])
def test_chiefs_and_workers_may_have_several(name: str) -> None:
    framework = get_framework(name)
    assert [role for role in Role if framework.several_processes(role)] == [Role.CHIEF, Role.WORKER]


@pytest.mark.parametrize("written", [2, "2", "2.0", "gpus"])
def test_a_job_that_was_read_is_read_again(written: object) -> None:
    job = job_of("pytorch", worker={"processes": written, "gpus": 2})
    assert parse_job(job) == job
    assert job.tasks["worker"].process_count == 2


def test_ranks_are_everybody_s_though_others_are_not_there() -> None:
    job = job_of("standalone", worker={"instances": 3, "processes": 2})
    first, middle, last = cluster_of(job).tasks
    there = attrs.evolve(cluster_of(job), tasks=(TaskAddress("worker", 0, first.role), middle, last))
    env = task_environment(job, there, "worker", 1, local_rank=1).env
    assert (env["TONY_RANK"], env["TONY_WORLD_SIZE"]) == ("3", "6")
    assert json.loads(env["TONY_CLUSTER_SPEC"])["worker"][:3] == ["", "", "10.0.0.1:20001"]
    assert "TONY_RENDEZVOUS" not in env
