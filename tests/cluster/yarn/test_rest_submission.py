from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import pytest

from tony_provider.cluster.interface import Submission
from tony_provider.cluster.yarn.rest import submission_context
from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalizedResource,
    YarnAccess,
)
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, Token
from tony_provider.runtime.jobspec.model import (
    AccessNames,
    AclSpec,
    AmSpec,
    ContainerRuntime,
    Docker,
    Duration,
    JobSpec,
    Memory,
    TaskSpec,
)
from tony_provider.runtime.launch.launch_context import launch_file


def context(credentials: Credentials | None = None, **job: Any) -> dict[str, Any]:
    spec = JobSpec(
        "standalone", **{"tasks": {"worker": TaskSpec("true")}, "name": "clicks", "python_env": "e.zip", **job}
    )
    runtime = LocalizedResource("tony-runtime.zip", "hdfs://nn/cache/a b/tony.zip", 7, 8, sha256="ab" * 32)
    environment = LocalizedResource("python_env", "hdfs://nn/jobs/x/env.zip", 9, 10)
    description = ApplicationDescription(
        "application_1_0002",
        "alice",
        spec,
        "hdfs://nn/jobs/x",
        None,
        [],
        runtime,
        runtime_pythons=["3.11"],
        python=["/usr/bin/python3.11"],
        yarn=YarnAccess(["rm:8030"]),
    )
    submission = Submission(description, [environment], credentials or Credentials(), ["tony-abc"])
    made = submission_context(submission)
    json.dumps(made)
    return made


def entries(value: dict[str, Any]) -> dict[str, Any]:
    return {entry["key"]: entry["value"] for entry in value["entry"]}


def test_the_master_is_started_by_the_launcher_with_plain_words() -> None:
    container = context()["am-container-spec"]
    script = container["commands"]["command"].replace("<LOG_DIR>", "/tmp/logs")
    words, _, redirected = script.removeprefix("exec ").partition(" 1>")
    shown = subprocess.run(  # as a NodeManager's script runs it, with a program that prints its arguments
        ["/bin/bash", "-c", rf"""/bin/bash -c "set -- {words}; printf '%s\0' \"\$@\"" """],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split("\0")[:-1] == [
        "/bin/sh",
        "-c",
        launch_file("launcher.sh"),
        "tony",
        launch_file("prepare.py"),
        "am",
        "ab" * 32,
        "3.11",
    ]
    assert redirected == "/tmp/logs/stdout 2>/tmp/logs/stderr"
    assert entries(container["environment"]) == {
        "TONY_LOG_DIR": "<LOG_DIR>",
        "TONY_PYTHON_CANDIDATES": "/usr/bin/python3.11",
    }
    assert entries(container["local-resources"]) == {
        "tony-runtime.zip": {
            "resource": "hdfs://nn/cache/a%20b/tony.zip",
            "type": "FILE",
            "visibility": "PRIVATE",
            "size": 7,
            "timestamp": 8,
        },
        "tony-files/0": {
            "resource": "hdfs://nn/jobs/x/env.zip",
            "type": "FILE",
            "visibility": "APPLICATION",
            "size": 9,
            "timestamp": 10,
        },
    }


def test_who_may_modify_may_view() -> None:
    acls = AclSpec(AccessNames(["carol"], ["ml"]), AccessNames(["bob"]))
    assert entries(context(acls=acls)["am-container-spec"]["application-acls"]) == {
        "VIEW_APP": "bob,carol ml",
        "MODIFY_APP": "bob ",
    }
    groups = AclSpec(view=AccessNames(groups=["ml", "ops"]))
    assert entries(context(acls=groups)["am-container-spec"]["application-acls"]) == {"VIEW_APP": " ml,ops"}
    everybody = AclSpec(AccessNames(["carol"], ["ml"]), AccessNames(["*"]))
    assert entries(context(acls=everybody)["am-container-spec"]["application-acls"]) == {
        "VIEW_APP": "*",
        "MODIFY_APP": "*",
    }
    assert "application-acls" not in context()["am-container-spec"]  # Hadoop 2.10 fails at empty ones


def test_what_a_job_leaves_open_is_left_to_yarn() -> None:
    made = context()
    assert not {"queue", "priority", "app-node-label-expression", "am-container-node-label-expression"} & set(made)
    assert (made["application-type"], made["unmanaged-AM"]) == ("TONY", False)
    assert made["resource"] == {"memory": 512, "vCores": 1}
    # Hadoop 2.10 fails at empty lists.
    assert "credentials" not in made["am-container-spec"] or "tokens" not in made["am-container-spec"]["credentials"]


def test_what_a_job_says_is_said() -> None:
    made = context(queue="ml", priority=3, node_label="gpu", am=AmSpec(Memory(1024), 2, "cheap"))
    assert (made["queue"], made["priority"]) == ("ml", 3)
    assert made["app-node-label-expression"] == "gpu"
    assert made["am-container-node-label-expression"] == "cheap"
    assert made["resource"] == {"memory": 1024, "vCores": 2}


@pytest.mark.parametrize(
    ("tasks", "given", "memory"), [(1000, None, 512), (3000, None, 912), (10_000, None, 2312), (10_000, 256, 256)]
)
def test_memory_of_the_master_follows_the_number_of_tasks_unless_it_is_given(
    tasks: int, given: int | None, memory: int
) -> None:
    many = {"chief": TaskSpec("true"), "worker": TaskSpec("true", instances=tasks - 1)}
    made = context(tasks=many, am=AmSpec(None if given is None else Memory(given)))
    assert made["resource"]["memory"] == memory


def test_the_next_master_finds_the_containers_of_the_one_that_died() -> None:
    made = context(am=AmSpec(attempts=5, attempts_window=Duration(90.5)))
    assert made["keep-containers-across-application-attempts"] is True
    assert (made["max-app-attempts"], made["attempt-failures-validity-interval"]) == (5, 90_500)


def test_docker_is_asked_for_by_environment() -> None:
    made = context(docker=Docker("training:1", ["/data:/data:ro", "/models:/models:rw"]))
    environment = entries(made["am-container-spec"]["environment"])
    assert environment["YARN_CONTAINER_RUNTIME_TYPE"] == "docker"
    assert environment["YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "training:1"
    assert environment["YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"] == "/data:/data:ro,/models:/models:rw"


def test_the_master_may_run_in_another_image_or_in_none() -> None:
    own = context(docker=Docker("training:1"), am=AmSpec(docker=Docker("small:1")))
    environment = entries(own["am-container-spec"]["environment"])
    assert environment["YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "small:1"
    none = context(docker=Docker("training:1"), am=AmSpec(docker=Docker(runtime=ContainerRuntime.NONE)))
    environment = entries(none["am-container-spec"]["environment"])
    # Said, since an image may be what the nodes start by default.
    assert environment["YARN_CONTAINER_RUNTIME_TYPE"] == "default"
    assert not [name for name in environment if "DOCKER" in name]
    assert environment["TONY_PYTHON_CANDIDATES"] == "/usr/bin/python3.11"


def test_secrets_travel_in_the_credentials_only() -> None:
    token = Token(b"i", b"p", HDFS_TOKEN, "10.0.0.1:8020")
    made = context(Credentials({"10.0.0.1:8020": token}, {"tony.user.KEY": b"open-sesame"}))
    credentials = made["am-container-spec"].pop("credentials")
    assert entries(credentials["tokens"]) == {"10.0.0.1:8020": token.to_url_string()}
    assert base64.b64decode(entries(credentials["secrets"])["tony.user.KEY"]) == b"open-sesame"
    assert "open-sesame" not in json.dumps(made)
