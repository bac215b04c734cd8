"""TF_CONFIG and the classic values."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import attrs
import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.frameworks.base import get_framework, task_environment
from tony_provider.runtime.jobspec.model import JobSpec, Role
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job

PS_JOB: dict[str, dict[str, Any]] = {
    "chief": {},
    "worker": {"instances": 2},
    "ps": {},
    "evaluator": {},
    "tensorboard": {},
}
PS_CLUSTER = {
    "chief": ["10.0.0.1:20000"],
    "worker": ["10.0.0.1:20001", "10.0.0.1:20002"],
    "ps": ["10.0.0.1:20003"],
}


def tf_config(job: JobSpec, task_type: str, index: int) -> dict[str, Any]:
    text = task_environment(job, cluster_of(job), task_type, index).env["TF_CONFIG"]
    config = json.loads(text)
    assert isinstance(config, dict)
    return config


@pytest.mark.parametrize(("task_type", "index"), [("chief", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)])
def test_tf_config_of_each_kind_of_task(task_type: str, index: int) -> None:
    """The evaluator and the side-car stand in nobody's cluster; the evaluator knows the others, as TensorFlow wants."""
    assert tf_config(job_of(**PS_JOB), task_type, index) == {
        "cluster": PS_CLUSTER,
        "task": {"type": task_type, "index": index},
    }


def test_a_side_car_gets_no_tf_config() -> None:
    job = job_of(**PS_JOB)
    environment = task_environment(job, cluster_of(job), "tensorboard", 0)
    assert "TF_CONFIG" not in environment.env
    assert not any("TF_" in name for name in environment.env)
    assert environment.env["CUDA_VISIBLE_DEVICES"] == "-1"


def test_types_with_names_of_their_own_count_on_within_their_role() -> None:
    job = job_of(
        big={"instances": 2}, store={"role": "ps"}, small={"instances": 2}, watch={"role": "evaluator", "instances": 2}
    )
    assert tf_config(job, "small", 1) == {
        "cluster": {
            "worker": ["10.0.0.1:20000", "10.0.0.1:20001", "10.0.0.1:20003", "10.0.0.1:20004"],
            "ps": ["10.0.0.1:20002"],
        },
        "task": {"type": "worker", "index": 3},
    }
    assert tf_config(job, "watch", 1)["task"] == {"type": "evaluator", "index": 1}
    env = task_environment(job, cluster_of(job), "small", 1).env
    assert (env["TONY_TASK_TYPE"], env["TONY_TASK_INDEX"]) == ("small", "1")
    assert (env["TONY_TF_TASK_TYPE"], env["TONY_TF_TASK_INDEX"]) == ("worker", "3")


def test_a_command_can_use_the_classic_values() -> None:
    job = job_of(ps={}, worker={"instances": 2})
    env = task_environment(job, cluster_of(job), "worker", 1).env
    command = (
        "echo --ps_hosts=$TONY_PS_HOSTS --worker_hosts=$TONY_WORKER_HOSTS"
        " --job_name=$TONY_TF_TASK_TYPE --task_index=$TONY_TF_TASK_INDEX"
    )
    written = subprocess.run(["/bin/sh", "-c", command], env=env, check=True, capture_output=True, text=True).stdout
    assert written == (
        "--ps_hosts=10.0.0.1:20000 --worker_hosts=10.0.0.1:20001,10.0.0.1:20002 --job_name=worker --task_index=1\n"
    )


def test_gpus_are_hidden_from_tasks_that_asked_for_none() -> None:
    job = job_of(worker={"gpus": 1}, ps={}, evaluator={"env": {"CUDA_VISIBLE_DEVICES": "0"}})
    cluster = cluster_of(job)
    assert "CUDA_VISIBLE_DEVICES" not in task_environment(job, cluster, "worker", 0).env
    assert task_environment(job, cluster, "ps", 0).env["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "CUDA_VISIBLE_DEVICES" not in task_environment(job, cluster, "evaluator", 0).env, "the user's word stands"
    everywhere = attrs.evolve(job, env={"CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA_VISIBLE_DEVICES" not in task_environment(everywhere, cluster, "ps", 0).env


def test_held_ports_stay_usable() -> None:
    """Where TensorFlow's own server listens; others, such as TensorBoard's, bind without SO_REUSEPORT."""
    job = job_of(**PS_JOB)
    cluster = cluster_of(job)
    for task in cluster.tasks:
        told = task_environment(job, cluster, task.type, task.index).env.get("TF_GRPC_REUSE_PORT") == "true"
        assert told is get_framework("tensorflow").shares_ports(task.role)
    assert {role for role in Role if get_framework("tensorflow").shares_ports(role)} == {
        Role.CHIEF,
        Role.WORKER,
        Role.PS,
    }
    assert not any(get_framework("standalone").shares_ports(role) for role in Role)


def test_tf_config_of_4000_tasks_is_in_a_file() -> None:
    job = job_of(worker={"instances": 4000}, ps={"instances": 10})
    cluster = cluster_of(job, host="node-0000.rack-00.example.org")
    environment = task_environment(job, cluster, "worker", 3999)

    assert "TF_CONFIG" not in environment.env
    assert "TONY_WORKER_HOSTS" not in environment.env
    assert environment.env["TONY_PS_HOSTS"].count(",") == 9
    config = json.loads(environment.files[environment.env["TONY_TF_CONFIG_FILE"]])
    assert len(config["cluster"]["worker"]) == 4000
    assert config["task"] == {"type": "worker", "index": 3999}
    subprocess.run(["/bin/true"], env=environment.env, check=True)


def test_a_small_tf_config_is_in_the_file_as_well() -> None:
    job = job_of(worker={})
    environment = task_environment(job, cluster_of(job), "worker", 0)
    assert environment.files["tony-tf-config.json"] == environment.env["TF_CONFIG"]


def test_a_tf_config_of_the_users_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job(
            {
                "framework": "tensorflow",
                "env": {"TF_CONFIG": "{}"},
                "tasks": {"worker": {"command": "true", "env": {"TF_CONFIG": "{}"}}},
            }
        )
    assert [problem.path for problem in caught.value.problems] == ["env.TF_CONFIG", "tasks.worker.env.TF_CONFIG"]
    with pytest.raises(SpecError, match=r"secrets\[0\]: is set by the framework"):
        parse_job({"framework": "tensorflow", "secrets": ["TF_CONFIG"], "tasks": {"worker": {"command": "true"}}})
