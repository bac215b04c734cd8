"""What each process of a gang finds, framework by framework, beside the variables that their documents name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.frameworks.base import get_framework, task_environment
from tony_provider.runtime.frameworks.collective import CollectiveFramework
from tony_provider.runtime.jobspec.model import RestartScope, Role
from tony_provider.runtime.jobspec.problems import SpecError

GANG: dict[str, dict[str, Any]] = {"worker": {"instances": 2}, "chief": {}, "evaluator": {}}
COLLECTIVE = ["pytorch", "jax", "xgboost", "horovod", "generic"]


def env_of(framework: str, task_type: str, index: int, **tasks: dict[str, Any]) -> dict[str, str]:
    job = job_of(framework, **(tasks or GANG))
    env = task_environment(job, cluster_of(job), task_type, index).env
    return {name: value for name, value in env.items() if not name.startswith(("TONY_", "CUDA_"))}


def beside_of(framework: str, task_type: str, index: int) -> tuple[str, list[str]]:
    """What runs before the user's command, and the helper processes that run with it."""
    job = job_of(framework, **GANG)
    found = task_environment(job, cluster_of(job), task_type, index)
    return found.before, [helper.command for helper in found.helpers]


def test_pytorch_s_rendezvous_is_at_the_chief() -> None:
    env = env_of("pytorch", "worker", 1)
    assert {name: value for name, value in env.items() if not name.startswith("PET_")} == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20002",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
    }


def test_torchrun_needs_no_arguments() -> None:
    env = env_of("pytorch", "worker", 1)
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "static",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "20002",
        "PET_MAX_RESTARTS": "0",
    }
    assert env_of("pytorch", "chief", 0)["PET_NODE_RANK"] == "0"
    assert env_of("pytorch", "worker", 0, worker={"gpus": 4})["PET_NPROC_PER_NODE"] == "4"


def test_jax_finds_its_coordinator() -> None:
    assert env_of("jax", "worker", 0) == {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:20002"}


def test_xgboost_meets_by_what_every_job_has() -> None:
    assert env_of("xgboost", "worker", 1) == {}
    assert beside_of("xgboost", "chief", 0) == ("", [])


def test_horovod_finds_what_horovodrun_would_tell() -> None:
    assert env_of("horovod", "worker", 0) == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "900",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "20002",
        "HOROVOD_HOSTNAME": "10.0.0.1-1",
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "3",
    }
    wait = '"$(command -v python || command -v python3)" -m tony_wait 10.0.0.1 20002 || exit'
    assert beside_of("horovod", "worker", 0) == (wait, [])
    server = 'exec "$(command -v python || command -v python3)" -m tony_horovod'
    assert beside_of("horovod", "chief", 0) == (wait, [server])


def test_generic_has_ranks_and_a_place_to_meet() -> None:
    job = job_of("generic", **GANG)
    env = task_environment(job, cluster_of(job), "worker", 1).env
    assert (env["TONY_RANK"], env["TONY_WORLD_SIZE"], env["TONY_RENDEZVOUS"]) == ("2", "3", "10.0.0.1:20002")
    assert env_of("generic", "worker", 1) == {}


@pytest.mark.parametrize("framework", COLLECTIVE)
def test_those_outside_the_gang_find_nothing_of_it(framework: str) -> None:
    assert env_of(framework, "evaluator", 0) == {}
    assert beside_of(framework, "evaluator", 0) == ("", [])


@pytest.mark.parametrize("name", COLLECTIVE)
def test_the_gang_starts_again_as_one_and_may_shrink(name: str) -> None:
    framework = get_framework(name)
    assert isinstance(framework, CollectiveFramework)
    assert {framework.scope(role) for role in (Role.CHIEF, Role.WORKER)} == {RestartScope.GANG}
    assert [role for role in Role if framework.elastic(role)] == [Role.WORKER]
    job_of(name, worker={"instances": 3, "min_instances": 2})


@pytest.mark.parametrize("name", COLLECTIVE)
def test_there_are_no_parameter_servers(name: str) -> None:
    with pytest.raises(SpecError, match=rf"tasks.ps: {name} has no parameter servers"):
        job_of(name, worker={}, ps={})


@pytest.mark.parametrize(
    ("framework", "variable"),
    [("pytorch", "MASTER_PORT"), ("jax", "JAX_COORDINATOR_ADDRESS"), ("horovod", "HOROVOD_RANK")],
)
def test_what_is_made_of_the_cluster_is_not_for_jobs_to_set(framework: str, variable: str) -> None:
    with pytest.raises(SpecError, match=rf"tasks.worker.env.{variable}: is set by the framework; leave it out"):
        job_of(framework, worker={"env": {variable: "1"}})
