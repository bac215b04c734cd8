"""Frameworks with servers: MXNet's and Ray's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.frameworks.jobs import cluster_of
from tony_provider.runtime.frameworks.base import PYTHON_COMMAND, get_framework, task_environment
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job


def mxnet_job(**more: Any) -> JobSpec:
    tasks = {"worker": {"instances": 2, "command": "python train.py"}, "ps": {"instances": 3}, **more}
    return parse_job({"framework": "mxnet", "tasks": tasks})


def ray_job(**more: Any) -> JobSpec:
    chief = {"command": "python driver.py", "memory": "2GiB", "vcores": 2}
    worker = {"instances": 2, "memory": "1GiB", "gpus": 1}
    return parse_job({"framework": "ray", "tasks": {"chief": chief, "worker": worker, **more}})


def test_mxnet_s_scheduler_runs_beside_rank_0_at_a_port_of_its_own() -> None:
    job = mxnet_job()
    first = task_environment(job, cluster_of(job), "worker", 0)
    meeting = {
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "DMLC_PS_ROOT_PORT": "20000",
        "DMLC_NUM_SERVER": "3",
        "DMLC_NUM_WORKER": "2",
    }
    assert {name: value for name, value in first.env.items() if name.startswith("DMLC")} == {
        "DMLC_ROLE": "worker",
        **meeting,
    }
    [scheduler] = first.helpers
    assert scheduler.command == f"DMLC_ROLE=scheduler; export DMLC_ROLE\nexec {PYTHON_COMMAND} -c 'import mxnet'"
    server = task_environment(job, cluster_of(job), "ps", 2)
    assert {name: value for name, value in server.env.items() if name.startswith("DMLC")} == {
        "DMLC_ROLE": "server",
        **meeting,
    }
    assert (server.before, server.helpers) == ("", ())


def test_mxnet_s_servers_need_no_command() -> None:
    assert get_framework("mxnet").default_command(Role.PS) == f"exec {PYTHON_COMMAND} -c 'import mxnet'"
    assert mxnet_job().tasks["ps"].command == ""  # else a release with another one would be another training
    assert mxnet_job(ps={"command": "python serve.py"}).tasks["ps"].command == "python serve.py"
    with pytest.raises(SpecError, match=r"tasks.worker.command: is required"):
        mxnet_job(worker={})


def test_mxnet_needs_servers() -> None:
    with pytest.raises(SpecError, match="mxnet needs parameter servers: a task type ps"):
        parse_job({"framework": "mxnet", "tasks": {"worker": {"command": "true"}}})


def test_ray_s_head_is_the_chief_and_its_driver_the_job() -> None:
    job = ray_job()
    head = task_environment(job, cluster_of(job), "chief", 0)
    assert head.env["RAY_ADDRESS"] == "10.0.0.1:20000"
    [helper] = head.helpers
    assert "--block" in helper.command
    assert "--head --port=$TONY_PORT" in helper.command
    assert head.before == f"{PYTHON_COMMAND} -m tony_wait 10.0.0.1 20000 || exit"
    assert list(get_framework("ray").decisive(job)) == ["chief"]


def test_ray_s_nodes_have_what_their_containers_have() -> None:
    job = ray_job()
    node = task_environment(job, cluster_of(job), "worker", 1)
    assert (node.before, node.helpers) == ("", ())
    arguments = node.env["TONY_RAY_ARGUMENTS"].split()
    assert {"--node-ip-address=10.0.0.1", "--num-cpus=1", "--num-gpus=1"} <= set(arguments)
    memory = {name: int(value) for name, _, value in (each.partition("=") for each in arguments) if "memory" in name}
    assert sum(memory.values()) <= 1 << 30
    assert memory["--object-store-memory"] >= 75 << 20
    assert get_framework("ray").default_command(Role.WORKER).endswith("--address=$RAY_ADDRESS")


def test_a_node_of_ray_ends_at_once_when_its_head_has_ended() -> None:
    job = ray_job()
    node = task_environment(job, cluster_of(job), "worker", 1)
    assert node.env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "0"


def test_whoever_reaches_ray_s_ports_has_to_know_the_job_s_token() -> None:
    job = ray_job()
    for task_type in ("chief", "worker"):
        assert task_environment(job, cluster_of(job), task_type, 0).env["RAY_AUTH_MODE"] == "token"
    assert get_framework("ray").secret_variables == {"RAY_AUTH_TOKEN"}


def test_a_node_of_ray_starts_again_alone_and_all_with_their_head() -> None:
    framework = get_framework("ray")
    assert framework.scope(Role.WORKER) is RestartScope.TASK
    assert framework.scope(Role.CHIEF) is RestartScope.GANG


def test_ray_needs_a_head() -> None:
    with pytest.raises(SpecError, match="ray needs a task type chief"):
        parse_job({"framework": "ray", "tasks": {"worker": {"command": "true"}}})
