"""The variables that every task gets, whatever its framework."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks.base import (
    TaskAddress,
    TaskEnvironment,
    fits_variable,
    framework_names,
    get_framework,
    task_environment,
)
from tony_provider.runtime.jobspec.model import Role

PIECES = {
    "ps": {"instances": 2},
    "worker": {"instances": 2},
    "chief": {},
    "evaluator": {},
    "tensorboard": {},
}


def test_each_task_learns_who_it_is_and_who_the_others_are() -> None:
    job = job_of("standalone", **PIECES)
    cluster = cluster_of(job)

    environment = task_environment(job, cluster, "worker", 1)

    assert environment.env == {
        "TONY_JOB_NAME": "training",
        "TONY_TASK_TYPE": "worker",
        "TONY_TASK_INDEX": "1",
        "TONY_RANK": "2",
        "TONY_WORLD_SIZE": "5",
        "TONY_LOCAL_RANK": "0",
        "TONY_LOCAL_WORLD_SIZE": "1",
        "TONY_GENERATION": "1",
        "TONY_PORT": "20003",
        "TONY_RENDEZVOUS": "10.0.0.1:20004",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TONY_CLUSTER_SPEC": (
            '{"ps":["10.0.0.1:20000","10.0.0.1:20001"],"worker":["10.0.0.1:20002","10.0.0.1:20003"],'
            '"chief":["10.0.0.1:20004"]}'
        ),
        "TONY_CLUSTER_SPEC_FILE": "tony-cluster.json",
    }
    assert environment.files == {"tony-cluster.json": environment.env["TONY_CLUSTER_SPEC"]}


def test_ranks_are_chief_then_workers_then_parameter_servers() -> None:
    job = job_of("standalone", **PIECES)
    cluster = cluster_of(job)
    members = [task for task in cluster.tasks if task.role not in (Role.EVALUATOR, Role.SIDECAR)]
    ranks = {
        f"{task.type}:{task.index}": task_environment(job, cluster, task.type, task.index).env["TONY_RANK"]
        for task in members
    }
    assert ranks == {"chief:0": "0", "worker:0": "1", "worker:1": "2", "ps:0": "3", "ps:1": "4"}


@pytest.mark.parametrize("outsider", ["evaluator", "tensorboard"])
def test_evaluators_and_side_cars_see_the_cluster_and_have_no_rank(outsider: str) -> None:
    job = job_of("standalone", **PIECES)
    environment = task_environment(job, cluster_of(job), outsider, 0)
    assert "TONY_RANK" not in environment.env
    assert set(json.loads(environment.env["TONY_CLUSTER_SPEC"])) == {"ps", "worker", "chief"}


def test_files_are_named_by_where_the_caller_writes_them() -> None:
    job = job_of(worker={})
    environment = task_environment(job, cluster_of(job), "worker", 0, directory="/containers/c1")
    assert environment.env[contract.ENV_CLUSTER_SPEC_FILE] == "/containers/c1/tony-cluster.json"
    assert environment.env[contract.ENV_TF_CONFIG_FILE] == "/containers/c1/tony-tf-config.json"
    assert set(environment.files) == {"tony-cluster.json", "tony-tf-config.json"}
    assert environment.paths == {}


def test_a_cluster_too_large_for_a_variable_is_in_the_file_alone() -> None:
    job = job_of("standalone", worker={"instances": 10_000})
    environment = task_environment(job, cluster_of(job), "worker", 9_999)
    assert contract.ENV_CLUSTER_SPEC not in environment.env
    assert len(json.loads(environment.files[contract.CLUSTER_SPEC_FILE])["worker"]) == 10_000


def test_the_limit_is_the_one_that_linux_has() -> None:
    longest = "x" * (contract.MAX_ENV_STRING - len("NAME=") - 1)
    assert fits_variable("NAME", longest)
    subprocess.run(["/bin/true"], env={"NAME": longest}, check=True)
    assert not fits_variable("NAME", longest + "x")
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"NAME": longest + "x"}, check=True)


def test_a_task_that_the_cluster_lacks() -> None:
    job = job_of(worker={})
    with pytest.raises(LookupError, match="worker:1"):
        task_environment(job, cluster_of(job), "worker", 1)


def test_ipv6_hosts_stand_in_brackets() -> None:
    assert TaskAddress("worker", 0, Role.WORKER, "fe80::1", {"main": 20000}).main == "[fe80::1]:20000"


def test_environments_add_up_and_the_later_one_wins() -> None:
    first = TaskEnvironment({"A": "1", "B": "1"}, {"f": "1"}, {"F": "f"})
    second = TaskEnvironment({"B": "2"}, {"g": "2"}, {"G": "g"})
    assert (first + second).placed("/d") == TaskEnvironment(
        {"A": "1", "B": "2", "F": str(Path("/d/f")), "G": "/d/g"}, {"f": "1", "g": "2"}
    )


def test_the_frameworks_there_are() -> None:
    ours = "tensorflow pytorch jax xgboost ray horovod mpi mxnet generic standalone"
    assert " ".join(framework_names()) == ours
    for name in framework_names():
        assert get_framework(name).name == name
        assert get_framework(name).ports("worker", Role.WORKER)[0] == "main"
    with pytest.raises(LookupError, match="the frameworks are tensorflow, pytorch"):
        get_framework("theano")


@pytest.mark.parametrize(
    ("framework", "tasks", "decisive"),
    [
        ("tensorflow", ["worker"], ["worker"]),
        ("tensorflow", ["chief", "worker", "evaluator", "tensorboard"], ["chief", "worker"]),
        ("tensorflow", ["ps", "worker"], ["worker"]),
        ("tensorflow", ["ps", "worker", "chief"], ["chief"]),
        ("tensorflow", ["trainer", "loader"], ["trainer", "loader"]),
        ("standalone", ["chief", "worker", "ps"], ["chief", "worker"]),
    ],
)
def test_who_decides_the_end(framework: str, tasks: list[str], decisive: list[str]) -> None:
    job = job_of(framework, **{name: {} for name in tasks})
    assert list(get_framework(framework).decisive(job)) == decisive
