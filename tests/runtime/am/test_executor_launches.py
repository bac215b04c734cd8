"""What the containers of each task type get: files and interpreters of its own beside those of all."""

from __future__ import annotations

import attrs

from tony_provider.runtime.am.master import ExecutorLaunches
from tony_provider.runtime.am.resource_manager import Container, Launch
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.launch.launch_context import launch_environment
from tony_provider.runtime.parsing.parse import parse_job

JOB = parse_job(
    {
        "framework": "standalone",
        "python_env": "hdfs:///envs/tf.tar.gz",
        "tasks": {
            "worker": {"command": "x"},
            "prepare": {"command": "x", "python_env": "/opt/envs/tools"},
            "score": {"command": "x", "python_env": "score.pex"},
        },
    }
)


def resource(name: str) -> LocalizedResource:
    return LocalizedResource(name, f"hdfs://nn/cache/{name}", 1, 2)


DESCRIPTION = ApplicationDescription(
    "application_1_0001",
    "me",
    JOB,
    "hdfs://nn/jobs/x",
    None,
    [resource("train.py")],
    LocalizedResource("tony-runtime.zip", "hdfs://nn/cache/tony.zip", 1, 2),
    python=["/usr/bin/python3.12"],
    resources_by_type={"worker": [resource("python_env")], "score": [resource("python_env/score.pex")]},
)


def launch(task: str, description: ApplicationDescription = DESCRIPTION) -> Launch:
    launches = ExecutorLaunches(description, Credentials(), b"key", Address("node", 1))
    return launches.launch(task, 1, Container("container_1", "node:1"))


def test_files_of_a_task_type_go_to_its_containers_alone() -> None:
    names = {task: [each.name for each in launch(task).files.values()] for task in ("worker:0", "prepare:0", "score:0")}
    of_all = ["tony-runtime.zip", "train.py"]
    assert list(launch("worker:0").files) == [
        "tony-runtime.zip",
        "tony-files/0",
        "tony-files/1",
    ]
    assert names == {
        "worker:0": [*of_all, "python_env"],
        "prepare:0": of_all,
        "score:0": [*of_all, "python_env/score.pex"],
    }


def test_a_directory_of_the_nodes_goes_first_and_a_packed_environment_is_verified_before_it_runs() -> None:
    found = {task: launch(task).env["TONY_PYTHON_CANDIDATES"] for task in ("worker:0", "prepare:0", "score:0")}
    assert found == {
        "worker:0": "/usr/bin/python3.12",
        "prepare:0": "/opt/envs/tools/bin/python:/usr/bin/python3.12",
        "score:0": "/usr/bin/python3.12",
    }
    assert launch_environment(DESCRIPTION)["TONY_PYTHON_CANDIDATES"] == found["worker:0"]  # of the master


def test_without_any_of_it_there_is_no_such_variable() -> None:
    job = parse_job({"framework": "standalone", "tasks": {"worker": {"command": "x"}}})
    plain = attrs.evolve(DESCRIPTION, job=job, python=[], resources_by_type={})
    assert "TONY_PYTHON_CANDIDATES" not in launch("worker:0", plain).env
    assert launch_environment(plain) == {}
