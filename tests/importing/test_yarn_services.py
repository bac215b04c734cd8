"""YARN services: definitions become jobs of the framework ``standalone``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importing.jobs import imported_text, why
from tony_provider.importing.imported import Imported, NotImportable
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.model import Duration, Milestone, ReadinessProbe, RestartScope

SERVICE: dict[str, Any] = {
    "name": "web-service",
    "version": "1.0",
    "lifetime": "3600",
    "queue": "ml",
    "configuration": {
        "env": {"LEVEL": "info"},
        "properties": {
            "yarn.service.am-resource.memory": "768",
            "yarn.service.container-failure.retry.max": 7,
            "yarn.service.rolling-log.include-pattern": ".*",
        },
    },
    "components": [
        {
            "name": "web-server",
            "number_of_containers": 2,
            "launch_command": "./serve ${COMPONENT_INSTANCE_NAME}",
            "resource": {
                "cpus": 2,
                "memory": "1024",
                "additional": {"yarn.io/gpu": {"value": 1}, "example.com/disk": {"value": 10, "unit": "Gi"}},
            },
            "artifact": {"id": "/packages/web.tgz", "type": "TARBALL"},
            "readiness_check": {"type": "HTTP", "properties": {"url": "http://${THIS_HOST}:8080"}},
            "restart_policy": "NEVER",
            "configuration": {
                "env": {"PORT": "8080"},
                "files": [
                    {"type": "STATIC", "dest_file": "words.txt", "src_file": "/data/words.txt"},
                    {"type": "XML", "dest_file": "site.xml", "properties": {"a": "b"}},
                ],
            },
        },
        {
            "name": "client",
            "number_of_containers": 1,
            "dependencies": ["web-server", "idle"],
            "launch_command": "./ask",
            "restart_policy": "ON_FAILURE",
            "placement_policy": {"constraints": []},
        },
        {"name": "idle", "number_of_containers": 0, "launch_command": "true"},
        {"name": "other", "artifact": {"id": "other-service", "type": "SERVICE"}},
    ],
    "quicklinks": {"web": "http://x"},
    "colour": "red",
}


def read(folder: Path, plain: dict[str, Any], **more: Any) -> Imported:
    return imported_text(folder, "service.json", json.dumps(plain), **more)


def test_a_service_becomes_a_job(tmp_path: Path) -> None:
    found = read(tmp_path, SERVICE)
    job = parse_job(found.job)
    assert (job.framework, job.name, job.queue) == ("standalone", "web-service", "ml")
    assert job.timeouts.lifetime == Duration(3600)
    assert (job.env, job.am.memory, job.restart.budget) == ({"LEVEL": "info"}, 768, 7)
    server, client = job.tasks["web_server"], job.tasks["client"]
    assert (server.instances, server.memory, server.vcores, server.gpus) == (2, 1024, 2, 1)
    assert server.resources["example.com/disk"].plain == "10Gi"
    assert server.ready == ReadinessProbe(command="curl -fs 'http://localhost:8080'")
    assert (server.restart, server.env) == (RestartScope.NEVER, {"PORT": "8080"})
    assert (client.after, client.restart) == ({"web_server": Milestone.READY}, None)
    assert [(each.source, each.target) for each in job.files] == [("hdfs:///data/words.txt", "resources/words.txt")]
    assert [(each.source, each.target) for each in job.archives] == [("hdfs:///packages/web.tgz", "lib")]
    assert set(job.tasks) == {"web_server", "client"}


def test_what_is_left_says_why(tmp_path: Path) -> None:
    found = read(tmp_path, SERVICE)
    assert "unknown key" in why(found, "colour")
    assert "a job has none" in why(found, "version")
    assert "no container" in why(found, "component.idle")
    assert "another service" in why(found, "component.other")
    assert "is not there" in why(found, "component.client.dependencies")
    assert "not read" in why(found, "component.client.placement_policy")
    assert "${COMPONENT_INSTANCE_NAME}" in why(found, "component.web-server.launch_command")
    assert "from properties" in why(found, "component.web-server.configuration.files site.xml")
    assert "role: sidecar" in why(found, "component.web_server")
    assert "no key of ours" in why(found, "yarn.service.rolling-log.include-pattern")


def test_what_the_service_says_is_for_components_that_say_nothing(tmp_path: Path) -> None:
    component = {"name": "sleeper"}
    plain = {"launch_command": "sleep 1", "resource": {"cpus": 3, "memory": "300"}, "number_of_containers": 4}
    found = read(tmp_path, {"name": "x", **plain, "components": [component]})
    assert found.job["tasks"] == {"sleeper": {"instances": 4, "memory": 300, "vcores": 3, "command": "sleep 1"}}


def test_a_port_is_a_probe_and_no_check_is_a_start(tmp_path: Path) -> None:
    probe = {"type": "PORT", "properties": {"port": "8080"}}
    one = {"name": "one", "launch_command": "a", "readiness_check": probe}
    two = {"name": "two", "launch_command": "b", "dependencies": ["one"]}
    three = {"name": "three", "launch_command": "c", "dependencies": ["two"]}
    job = parse_job(read(tmp_path, {"name": "x", "components": [one, two, three]}).job)
    assert job.tasks["one"].ready == ReadinessProbe(port=8080)
    assert job.tasks["two"].after == {"one": Milestone.READY}
    assert job.tasks["three"].after == {"two": Milestone.STARTED}


def test_an_images_entry_point_is_no_command(tmp_path: Path) -> None:
    env = {"YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE": "true"}
    component = {
        "name": "sleeper",
        "artifact": {"id": "centos:7"},
        "launch_command": "sleep,90000",
        "configuration": {"env": env},
    }
    plain = {"name": "x", "components": [component]}
    with pytest.raises(NotImportable, match=r"tasks\.sleeper\.command: the image's own entry point"):
        read(tmp_path, plain)
    found = read(tmp_path, plain, command="sleep 90000")
    assert found.job["docker"] == {"image": "centos:7"}
    assert found.job["tasks"]["sleeper"]["command"] == "sleep 90000"


def test_the_second_image_is_left(tmp_path: Path) -> None:
    components = [{"name": n, "artifact": {"id": f"image:{n}"}, "launch_command": "x"} for n in ("one", "two")]
    found = read(tmp_path, {"name": "x", "components": components})
    assert found.job["docker"] == {"image": "image:one"}
    assert "one image" in why(found, "component.two.artifact")


def test_a_service_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotImportable, match="no task type with an instance"):
        read(tmp_path, {"name": "x", "components": [{"name": "a", "number_of_containers": 0}]})
