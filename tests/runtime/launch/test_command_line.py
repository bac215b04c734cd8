"""The variables that containers get: whether in an image, in which, and how."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.launch.launch_context import launch_environment
from tony_provider.runtime.parsing.parse import parse_job

DOCKER = "YARN_CONTAINER_RUNTIME_DOCKER_"


def variables(docker: Any, own: Any = None, *, python_env: str | None = None) -> dict[str, str]:
    """Of a worker, whose type has a ``docker`` of its own."""
    plain = {"framework": "standalone", "docker": docker, "python_env": python_env}
    am = {"docker": {"network": "host"} if docker else None}
    job = parse_job({**plain, "am": am, "tasks": {"worker": {"command": "true", "docker": own}}})
    python = ["/usr/bin/python3.11"]
    runtime = LocalizedResource("tony", "hdfs:///tony.zip", 1, 1)
    description = ApplicationDescription("application_1_1", "alice", job, "hdfs:///x", None, [], runtime, python=python)
    assert launch_environment(description)
    return launch_environment(description, "worker")


def test_every_key_of_dockers_has_its_variable() -> None:
    image = {
        "image": "registry:5000/tf:2",
        "mounts": ["/data:/data:ro", "/scratch:/scratch"],
        "tmpfs": ["/dev/shm", "/run/x"],
        "network": "ml",
        "privileged": True,
        "pid_namespace": "host",
        "oci_runtime": "nvidia",
        "delayed_removal": True,
        "client_config": "hdfs:///user/alice/config.json",
    }
    found = variables(image)
    assert found.pop("TONY_PYTHON_CANDIDATES")
    assert found == {
        "YARN_CONTAINER_RUNTIME_TYPE": "docker",
        f"{DOCKER}IMAGE": "registry:5000/tf:2",
        f"{DOCKER}MOUNTS": "/data:/data:ro,/scratch:/scratch:rw",
        f"{DOCKER}TMPFS_MOUNTS": "/dev/shm,/run/x",
        f"{DOCKER}CONTAINER_NETWORK": "ml",
        f"{DOCKER}RUN_PRIVILEGED_CONTAINER": "true",
        f"{DOCKER}CONTAINER_PID_NAMESPACE": "host",
        f"{DOCKER}RUNTIME": "nvidia",
        f"{DOCKER}DELAYED_REMOVAL": "true",
        f"{DOCKER}RUN_OVERRIDE_DISABLE": "false",
    }


def test_what_is_not_said_is_the_nodes_to_decide() -> None:
    found = variables({"image": "tf", "privileged": False, "delayed_removal": False, "tmpfs": []})
    assert set(found) - {"TONY_PYTHON_CANDIDATES"} == {
        "YARN_CONTAINER_RUNTIME_TYPE",
        f"{DOCKER}IMAGE",
        f"{DOCKER}RUN_OVERRIDE_DISABLE",
    }


def test_runc_has_variables_of_its_own() -> None:
    found = variables({"image": "tf", "mounts": ["/data:/data:ro"]}, {"runtime": "runc"})
    assert found.pop("TONY_PYTHON_CANDIDATES")
    assert found == {
        "YARN_CONTAINER_RUNTIME_TYPE": "runc",
        "YARN_CONTAINER_RUNTIME_RUNC_IMAGE": "tf",
        "YARN_CONTAINER_RUNTIME_RUNC_MOUNTS": "/data:/data:ro",
    }


def test_a_type_without_an_image_says_so() -> None:
    assert variables({"image": "tf"}, False)["YARN_CONTAINER_RUNTIME_TYPE"] == "default"
    assert variables(False)["YARN_CONTAINER_RUNTIME_TYPE"] == "default"
    assert "YARN_CONTAINER_RUNTIME_TYPE" not in variables(None)


@pytest.mark.parametrize(
    ("docker", "python_env", "candidates"),
    [
        (None, None, ["/usr/bin/python3.11"]),
        (None, "/opt/env", ["/opt/env/bin/python", "/usr/bin/python3.11"]),
        ({"image": "tf"}, None, ["python3", "python", "/usr/bin/python3.11"]),
        ({"image": "tf"}, "/opt/env", ["/opt/env/bin/python", "python3", "python", "/usr/bin/python3.11"]),
    ],
)
def test_an_images_own_python_goes_before_those_that_nodes_have(
    docker: Any, python_env: str | None, candidates: list[str]
) -> None:
    assert variables(docker, python_env=python_env)["TONY_PYTHON_CANDIDATES"].split(":") == candidates


def test_an_image_and_an_environment_of_a_type_go_together() -> None:
    """Of the type's own environment, and behind it; the master has those of the job."""
    tasks = {"worker": {"command": "true", "python_env": "/opt/own", "docker": {"image": "gpu"}}}
    tasks["tool"] = {"command": "true", "python_env": "tool.pex", "docker": {"image": "tools"}}
    job = parse_job({"framework": "standalone", "python_env": "env.tar.gz", "tasks": tasks})
    runtime = LocalizedResource("tony", "hdfs:///tony.zip", 1, 1)
    description = ApplicationDescription("application_1_1", "alice", job, "hdfs:///x", None, [], runtime, python=["/p"])
    found = {task_type: launch_environment(description, task_type) for task_type in ("worker", "tool", None)}
    assert {name: each["TONY_PYTHON_CANDIDATES"].split(":") for name, each in found.items()} == {
        "worker": ["/opt/own/bin/python", "python3", "python", "/p"],
        "tool": ["python3", "python", "/p"],
        None: ["/p"],
    }
    assert {name: each.get(f"{DOCKER}IMAGE") for name, each in found.items()} == {
        "worker": "gpu",
        "tool": "tools",
        None: None,
    }
