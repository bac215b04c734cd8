"""YARN services: definitions become jobs of the framework ``standalone``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.jobs import imported_text, why
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.runtime.jobspec.container_content import image_of, image_of_master
from tony_provider.runtime.jobspec.model import Duration, Milestone, ReadinessProbe, RestartScope
from tony_provider.runtime.jobspec.placement import PlacementConstraint, PlacementScope
from tony_provider.runtime.parsing.parse import parse_job

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
            "placement_policy": {"constraints": [{"type": "NEARBY", "scope": "NODE"}]},
        },
        {"name": "idle", "number_of_containers": 0, "launch_command": "true"},
        {"name": "other", "artifact": {"id": "other-service", "type": "SERVICE"}},
    ],
    "quicklinks": {"web": "http://x"},
    "colour": "red",
}


def read(folder: Path, plain: dict[str, Any], **more: Any) -> ImportedJob:
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
    assert [(each.source, each.target) for each in server.files] == [("hdfs:///data/words.txt", "resources/words.txt")]
    assert [(each.source, each.target) for each in server.archives] == [("hdfs:///packages/web.tgz", "lib")]
    assert (job.files, job.archives, client.files) == ([], [], [])
    assert set(job.tasks) == {"web_server", "client"}


def test_what_is_left_says_why(tmp_path: Path) -> None:
    found = read(tmp_path, SERVICE)
    assert "unknown key" in why(found, "colour")
    assert "a job has no version" in why(found, "version")
    assert "no container" in why(found, "component.idle")
    assert "another service" in why(found, "component.other")
    assert "the job has no task type" in why(found, "component.client.dependencies")
    assert "should have a type" in why(found, "component.client.placement_policy.constraints[0]")
    assert "${COMPONENT_INSTANCE_NAME}" in why(found, "component.web-server.launch_command")
    assert "from properties" in why(found, "component.web-server.configuration.files site.xml")
    assert "role: sidecar" in why(found, "component.web_server")
    assert "no key of a job specification" in why(found, "yarn.service.rolling-log.include-pattern")


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
    with pytest.raises(NotImportable, match=r"tasks\.sleeper\.command: the component runs its image's own entry point"):
        read(tmp_path, plain)
    found = read(tmp_path, plain, command="sleep 90000")
    assert found.job["tasks"]["sleeper"] == {
        "instances": 1,
        "docker": {"image": "centos:7"},
        "command": "sleep 90000",
    }


def test_each_component_has_its_image_and_what_belongs_to_it(tmp_path: Path) -> None:
    env = {"YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/etc/a:/etc/a:ro,/b:/b:rw", "LEVEL": "info"}
    one = {"name": "one", "artifact": {"id": "image:one"}, "run_privileged_container": True}
    one["configuration"] = {"env": env, "properties": {"docker.network": "calico"}}
    two = {"name": "two", "artifact": {"id": "image:two", "type": "DOCKER"}}
    three = {"name": "three"}
    plain = {"name": "x", "launch_command": "x", "components": [one, two, three]}
    job = parse_job(read(tmp_path, {**plain, "docker_client_config": "hdfs:///u/config.json"}).job)
    first, second = image_of(job, "one"), image_of(job, "two")
    assert first is not None
    assert second is not None
    assert (first.image, first.privileged, first.network) == ("image:one", True, "calico")
    assert (first.mounts, job.tasks["one"].env) == (["/etc/a:/etc/a:ro", "/b:/b:rw"], {"LEVEL": "info"})
    assert (second.image, second.privileged, second.client_config) == ("image:two", None, "hdfs:///u/config.json")
    assert image_of(job, "three") is None
    assert image_of_master(job) is None


def test_the_services_image_is_that_of_components_without_an_artifact(tmp_path: Path) -> None:
    tarball = {"name": "two", "artifact": {"id": "/packages/two.tgz", "type": "TARBALL"}}
    plain = {"name": "x", "launch_command": "x", "artifact": {"id": "image:all"}}
    job = parse_job(read(tmp_path, {**plain, "components": [{"name": "one"}, tarball]}).job)
    images = [image_of(job, "one"), image_of(job, "two"), image_of_master(job)]
    assert [image.image if image else None for image in images] == ["image:all", None, None]
    assert [each.source for each in job.tasks["two"].archives] == ["hdfs:///packages/two.tgz"]


def test_placement_policies_are_rules_attributes_and_labels(tmp_path: Path) -> None:
    constraints = [
        {"type": "ANTI_AFFINITY", "scope": "NODE", "target_tags": ["hbase-master"]},
        {"type": "AFFINITY", "scope": "RACK", "target_tags": ["hbase-master"], "node_attributes": {"os": ["linux"]}},
        {"type": "AFFINITY_WITH_CARDINALITY", "scope": "NODE", "target_tags": ["server"], "max_cardinality": 2},
        {"type": "AFFINITY_WITH_CARDINALITY", "scope": "NODE", "target_tags": ["hbase-master"], "min_cardinality": 1},
        {"type": "ANTI_AFFINITY", "scope": "NODE", "node_attributes": {"disk": ["hdd"], "fault": ["a", "b"]}},
        {"type": "AFFINITY", "scope": "NODE", "node_partitions": ["gpu", "cpu"]},
        {"type": "AFFINITY_WITH_CARDINALITY", "scope": "NODE", "target_tags": ["a", "b"], "max_cardinality": 1},
    ]
    master = {"name": "hbase-master", "launch_command": "m"}
    server = {"name": "server", "launch_command": "s", "placement_policy": {"constraints": constraints}}
    found = read(tmp_path, {"name": "x", "components": [master, server]})
    placement = parse_job(found.job).tasks["server"].placement
    assert placement is not None
    assert placement.constraints == [
        PlacementConstraint(anti_affinity=["hbase_master"]),
        PlacementConstraint(affinity=["hbase_master"], scope=PlacementScope.RACK),
        PlacementConstraint(cardinality="server", max=3),  # YARN counts those that are there before
        PlacementConstraint(cardinality="hbase_master", min=1),
    ]
    assert placement.attributes == ["os=linux", "disk!=hdd"]
    key = "component.server.placement_policy.constraints"
    assert "one value" in why(found, f"{key}[4].node_attributes.fault")
    assert "one `node_label`" in why(found, f"{key}[5].node_partitions")
    assert "several components" in why(found, f"{key}[6]")


def test_the_partition_of_a_policy_is_a_label(tmp_path: Path) -> None:
    policy = {
        "constraints": [{"type": "ANTI_AFFINITY", "scope": "NODE", "node_partitions": ["gpu"], "target_tags": ["a"]}]
    }
    found = read(
        tmp_path, {"name": "x", "components": [{"name": "a", "launch_command": "x", "placement_policy": policy}]}
    )
    assert found.job["tasks"]["a"]["node_label"] == "gpu"
    assert found.job["tasks"]["a"]["placement"] == {"constraints": [{"anti_affinity": ["a"]}]}


def test_a_command_that_wants_bash_has_it(tmp_path: Path) -> None:
    """YARN has every command run by bash."""
    found = read(tmp_path, {"name": "x", "components": [{"name": "a", "launch_command": "source env.sh && ./go"}]})
    assert found.job["tasks"]["a"]["command"] == "bash -c 'source env.sh && ./go'"


def test_a_command_is_what_yarns_shell_makes_of_it(tmp_path: Path) -> None:
    """YARN writes it between double quotes into the container's script."""
    written = r"export CLASSPATH=\`\$HADOOP_HOME/bin/hadoop classpath\`; echo \"$A\" 'a\\b\tc'"
    found = read(tmp_path, {"name": "x", "components": [{"name": "a", "launch_command": written}]})
    command = r"""export CLASSPATH=`$HADOOP_HOME/bin/hadoop classpath`; echo "$A" 'a\b\tc'"""
    assert found.job["tasks"]["a"]["command"] == command


def test_a_file_of_the_users_home_is_told_of(tmp_path: Path) -> None:
    files = [{"type": "STATIC", "dest_file": "a.conf", "src_file": "conf/a.conf"}]
    component = {"name": "a", "launch_command": "x", "configuration": {"files": files}}
    found = read(tmp_path, {"name": "x", "components": [component]})
    assert found.job["files"] == ["hdfs:///conf/a.conf::resources/a.conf"]
    assert "home on HDFS" in why(found, "component.a.configuration.files")


def test_what_is_no_list_or_mapping_is_listed(tmp_path: Path) -> None:
    component = {"name": "a", "launch_command": "x", "dependencies": {"b": 1}}
    component |= {"configuration": {"env": ["A=1"], "files": {"x": 1}}}
    component |= {"resource": {"cpus": 1, "memory": "256", "additional": ["yarn.io/gpu"]}}
    component |= {"placement_policy": {"constraints": {"type": "AFFINITY"}}}
    found = read(tmp_path, {"name": "x", "components": [component]})
    for key in ("dependencies", "configuration.env", "configuration.files", "resource.additional", "placement_policy"):
        assert "should be a" in why(found, f"component.a.{key}"), key


def test_a_service_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotImportable, match="the source has no task instances"):
        read(tmp_path, {"name": "x", "components": [{"name": "a", "number_of_containers": 0}]})
