"""Skein: specifications become jobs of the framework ``standalone``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.jobs import imported_text, why
from tony_provider.importers.key_table import ImportedJob
from tony_provider.runtime.jobspec.model import Milestone, Role
from tony_provider.runtime.parsing.parse import parse_job

SPECIFICATION = """
name: train
queue: ml
node_label: fast
tags: [a, b]
max_attempts: 3
user: carol
file_systems: [hdfs://other]
acls: {enable: true, view_users: [bob], modify_groups: [ml], ui_users: ['*']}
master:
  resources: {memory: 1 GiB, vcores: 2}
  log_level: debug
services:
  data-server:
    resources: {memory: 2 GiB, vcores: 1}
    files:
      environment: environment.tar.gz
      serve.py: src/serve.py
      words: {source: 'file:///data/words.txt', type: FILE, visibility: PUBLIC}
    script: |
      source environment/bin/activate
      python serve.py
  worker:
    instances: 4
    resources: {memory: 8 GB, vcores: 4, gpus: 1, fpgas: 2}
    max_restarts: 8
    depends: [data-server]
    env: {LEVEL: info, TONY_X: '1'}
    node_label: gpu
    racks: [/rack-1]
    allow_failures: true
    script: python train.py
  spare: {instances: 0, resources: {memory: 1, vcores: 1}, script: 'true'}
  late: {resources: {memory: 256, vcores: 1}, depends: [spare], script: 'true', max_restarts: 0, comands: [x]}
"""


def read(folder: Path, plain: dict[str, Any]) -> ImportedJob:
    return imported_text(folder, "spec.json", json.dumps(plain))


def test_a_specification_becomes_a_job(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "spec.yaml", SPECIFICATION)
    assert found.system == "Skein"
    assert found.arguments == {"proxy_user": "carol"}
    assert found.job["acls"] == {"view": {"users": ["bob"]}, "modify": {"groups": ["ml"]}}
    assert found.job["am"] == {"attempts": 3, "memory": "1 GiB", "vcores": 2}
    assert found.job["tasks"]["data_server"]["files"] == ["src/serve.py", "/data/words.txt::words"]
    assert found.job["tasks"]["data_server"]["archives"] == ["environment.tar.gz::environment"]
    assert found.job["restart"] == {"budget": 8}
    assert found.job["tasks"]["data_server"]["command"].startswith("bash -c 'source environment/bin/activate\n")
    job = parse_job(found.job)
    assert (job.framework, job.name, job.queue, job.node_label, job.tags) == (
        "standalone",
        "train",
        "ml",
        "fast",
        ["a", "b"],
    )
    worker = job.tasks["worker"]
    assert (worker.instances, worker.memory, worker.vcores, worker.gpus) == (4, 7630, 4, 1)  # 8 GB, not 8 GiB
    assert worker.resources["yarn.io/fpga"].value == 2
    assert (worker.env, worker.node_label, worker.command) == ({"LEVEL": "info"}, "gpu", "python train.py")
    assert worker.after == {"data_server": Milestone.STARTED}
    assert job.tasks["late"].restart is not None
    assert job.tasks["late"].after == {}
    assert "spare" not in job.tasks


def test_what_is_left_says_why(tmp_path: Path) -> None:
    found = imported_text(tmp_path, "spec.yaml", SPECIFICATION)
    assert "data_server" in why(found, "data-server")
    assert "other_hdfs" in why(found, "file_systems")
    assert why(found, "master.log_level") == "nothing to set"
    assert "tolerated_failures" in why(found, "services.worker.allow_failures")
    assert "TONY_" in why(found, "services.worker.env.TONY_X")
    assert "left out" in why(found, "services.spare.instances")
    assert "no task type" in why(found, "services.late.depends")
    assert "did you mean" in why(found, "services.late.comands")
    assert "role: sidecar" in why(found, "services.data-server")
    assert "staged by their content" in why(found, "services.data-server.files.words.visibility")


def test_names_that_are_roles_here_mean_nothing_there(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "true"}
    found = read(tmp_path, {"services": {"ps": service, "evaluator": service, "prepare": service, "a b": service}})
    job = parse_job(found.job)
    assert set(job.roles.values()) == {Role.WORKER}
    assert all(job.waits_for(name) == {} for name in job.tasks)
    assert set(job.tasks) == {"ps", "evaluator", "prepare_service", "a_b"}


def test_names_with_dots_are_names(tmp_path: Path) -> None:
    """As those of Dask's services."""
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "true", "nodes": ["a b"]}
    found = read(
        tmp_path, {"services": {"dask.worker": service, "dask.scheduler": {**service, "depends": ["dask.worker"]}}}
    )
    assert set(found.job["tasks"]) == {"dask_worker", "dask_scheduler"}
    assert found.job["tasks"]["dask_scheduler"]["after"] == {"dask_worker": "started"}
    assert "must be the node's host name" in why(found, "services.dask.worker.nodes")
    assert "placement" not in found.job["tasks"]["dask_worker"]


def test_a_masters_script_is_a_chief_whose_end_is_the_jobs(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "sleep 1000"}
    master: dict[str, Any] = {"script": "python driver.py", "files": {"driver.py": "driver.py"}, "env": {"A": "1"}}
    master["resources"] = {"memory": "300 MiB", "vcores": 2}
    job = parse_job(read(tmp_path, {"services": {"helper": service}, "master": master}).job)
    assert (job.tasks["chief"].memory, job.tasks["chief"].vcores, job.am.memory) == (300, 2, None)
    assert job.success is not None
    assert job.success.value == "chief"
    assert (job.tasks["chief"].command, job.tasks["chief"].env) == ("python driver.py", {"A": "1"})


def test_commands_of_older_specifications_are_one(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "commands": ["echo one", "echo two"]}
    found = read(tmp_path, {"services": {"worker": service}})
    assert found.job["tasks"]["worker"]["command"] == "echo one && echo two"


def test_any_number_of_restarts_is_many(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "true", "max_restarts": -1}
    found = read(tmp_path, {"services": {"worker": service}})
    assert found.job["restart"] == {"budget": 1000}


def test_nodes_and_racks_are_the_only_ones_unless_they_are_a_wish(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "true", "nodes": ["node1"], "racks": ["/rack1"]}
    found = read(tmp_path, {"services": {"strict": service, "wish": {**service, "relax_locality": True}}})
    strict, wish = (parse_job(found.job).tasks[name].placement for name in ("strict", "wish"))
    assert strict is not None
    assert wish is not None
    assert (strict.nodes, strict.racks, strict.required) == (["node1"], ["/rack1"], True)
    assert (wish.nodes, wish.racks, wish.required) == (["node1"], ["/rack1"], False)


def test_files_that_every_service_has_are_the_jobs(tmp_path: Path) -> None:
    resources = {"resources": {"memory": 128, "vcores": 1}, "script": "true"}
    found = read(
        tmp_path,
        {
            "services": {
                "one": {**resources, "files": {"common.py": "common.py", "env": "env.tar.gz"}},
                "two": {**resources, "files": {"own.py": "own.py", "common.py": "common.py", "env": "env.tar.gz"}},
            }
        },
    )
    assert (found.job["files"], found.job["archives"]) == (["common.py"], ["env.tar.gz::env"])
    assert "files" not in found.job["tasks"]["one"]
    assert found.job["tasks"]["two"]["files"] == ["own.py"]


def test_what_a_master_has_that_runs_nothing_is_nobodys(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "script": "true"}
    found = read(tmp_path, {"services": {"worker": service}, "master": {"env": {"A": "1"}, "files": {"x": "y"}}})
    assert set(found.job["tasks"]) == {"worker"}
    assert "no script" in why(found, "master.env")
    assert "no script" in why(found, "master.files")


def test_files_of_older_specifications_are_a_list(tmp_path: Path) -> None:
    service = {"resources": {"memory": 128, "vcores": 1}, "commands": ["cat payload.txt"]}
    listed = [{"file": "data/payload.txt"}, {"archive": "env.zip"}]
    found = read(tmp_path, {"services": {"one": {**service, "files": listed}}})
    assert (found.job["files"], found.job["archives"]) == (["data/payload.txt"], ["env.zip"])
    other = read(tmp_path, {"services": {"one": {**service, "files": [{"file": "a", "dest": "b"}]}}})
    assert "should be a mapping" in why(other, "services.one.files")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("ray start --head && skein kv put current --key=HEAD --value=$(hostname -i)", "skein kv"),
        ("source env/bin/activate\npython -m skein.recipes.jupyter_notebook", "-m skein.recipes.jupyter_notebook"),
        ("python skein.py --driver", ""),
    ],
)
def test_a_script_that_calls_skein_is_told_of(tmp_path: Path, script: str, told: str) -> None:
    found = read(tmp_path, {"name": "x", "services": {"head": {"script": script}}})
    assert (f"calls `{told}`" in why(found, "services.head.script")) == bool(told)
