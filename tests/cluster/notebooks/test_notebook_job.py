"""The job that is made of another one's task."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.notebooks import TOKEN, NotebookRequest, notebook_job, secrets_left_out
from tony_provider.runtime.jobspec.model import AccessNames, CheckpointFormat, Resource
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.notebook.serving import NotebookOptions
from tony_provider.runtime.parsing.parse import parse_job

JOB: dict[str, Any] = {
    "framework": "pytorch",
    "name": "clicks",
    "queue": "ml",
    "files": ["train.py"],
    "env": {"MODE": "fast"},
    "secrets": ["KEY", "OTHER"],
    "acls": {"view": {"users": ["carol"]}, "modify": {"users": ["bob"]}},
    "timeouts": {"queue": "2h", "lifetime": "3d", "stall": "1h"},
    "windows": ["22:00-06:00"],
    "inputs": {
        "clicks": {"paths": ["/data/clicks"], "tasks": ["worker"]},
        "words": {"paths": ["/w"], "tasks": ["chief"]},
    },
    "outputs": {"scores": "/out"},
    "tensorboard": True,
    "tasks": {
        "chief": {"command": "python train.py", "memory": "4GiB", "files": ["chief.yaml"], "secrets": ["KEY"]},
        "worker": {
            "command": "python train.py",
            "instances": 3,
            "max_instances": 5,
            "memory": "8GiB",
            "vcores": 2,
            "gpus": 1,
            "resources": {"yarn.io/fpga": 1},
            "node_label": "gpu",
            "python_env": "/opt/envs/worker",
            "docker": {"image": "ml/worker"},
            "placement": {"nodes": ["node7"], "required": True},
        },
    },
}


def wish(**more: Any) -> NotebookRequest:
    return NotebookRequest("clicks", NotebookOptions(3600, 1.7e9, 1 << 30), 43200.0, **more)


def test_it_has_what_the_leading_task_has() -> None:
    job = notebook_job(parse_job(JOB), wish(secrets=frozenset({"KEY", "OTHER"})), {})
    (task,) = job.tasks.values()
    assert (job.framework, job.name, job.queue) == ("standalone", "notebook clicks", "ml")
    assert task.command == "exec python -m tony_notebook --idle 3600 --until 1700000000 --keep 1073741824"
    assert (task.instances, task.memory, task.gpus) == (1, 4096, 0)
    assert (job.files, task.files) == ([Resource("train.py")], [Resource("chief.yaml")])
    assert job.env == {"MODE": "fast"}
    assert job.secrets == [TOKEN, "KEY", "OTHER"]
    assert list(job.inputs) == ["words"]
    assert job.readers("words") == ["notebook"]
    assert not job.outputs
    assert job.windows is None
    assert job.tensorboard is None


def test_another_type_is_named() -> None:
    job = notebook_job(parse_job(JOB), wish(task_type="worker", queue="night", secrets=frozenset({"KEY", "OTHER"})), {})
    task = job.tasks["notebook"]
    assert (job.queue, task.memory, task.vcores, task.gpus, task.node_label) == ("night", 8192, 2, 1, "gpu")
    assert (task.instances, task.max_instances, task.python_env) == (1, None, "/opt/envs/worker")
    assert task.docker is not None
    assert task.docker.image == "ml/worker"
    assert task.placement is not None
    assert (task.placement.nodes, task.placement.required) == (["node7"], True)
    assert job.secrets == [TOKEN, "OTHER"]  # the other one is the chief's
    assert list(job.inputs) == ["clicks"]


def test_nobody_inherits_a_shell() -> None:
    acls = notebook_job(parse_job(JOB), wish(), {}).acls
    assert (acls.view, acls.modify) == (AccessNames(["carol"]), AccessNames())


def test_times_and_saves_are_a_notebooks() -> None:
    job = notebook_job(parse_job(JOB), wish(), {})
    assert [job.timeouts.queue, job.timeouts.lifetime] == [7200.0, 43200.0]
    assert job.timeouts.stall is None
    assert job.timeouts.deadline is None
    assert job.checkpoint.format is CheckpointFormat.MANIFEST
    assert notebook_job(parse_job(JOB), NotebookRequest("n", wish().options, 3600.0), {}).timeouts.queue is None


def test_values_are_laid_over_the_notebooks_job_and_checked_with_it() -> None:
    job = notebook_job(parse_job(JOB), wish(), {"tasks": {"notebook": {"memory": "16GiB"}}, "env": {"MODE": None}})
    assert (job.tasks["notebook"].memory, job.env) == (16384, {})
    with pytest.raises(SpecError, match=r"tasks.notebook.memori: unknown key"):
        notebook_job(parse_job(JOB), wish(), {"tasks": {"notebook": {"memori": "16GiB"}}})


def test_a_type_that_is_not_there_is_told() -> None:
    with pytest.raises(JobRejected, match="no task type 'ps'; it has chief, worker"):
        notebook_job(parse_job(JOB), wish(task_type="ps"), {})


def test_secrets_without_a_value_are_named() -> None:
    assert secrets_left_out(parse_job(JOB), wish(secrets=frozenset({"KEY"}))) == ["OTHER"]
    assert secrets_left_out(parse_job(JOB), wish(task_type="worker")) == ["OTHER"]


@given(st.sampled_from(["chief", "worker"]), st.sets(st.sampled_from(["KEY", "OTHER", "THIRD"])), st.floats(120, 1e6))
def test_whatever_is_wished_is_a_job(task_type: str, secrets: set[str], lifetime: float) -> None:
    wanted = NotebookRequest("n", NotebookOptions(0, 0, 0), lifetime, task_type=task_type, secrets=frozenset(secrets))
    job = notebook_job(parse_job(JOB), wanted, {})
    assert parse_job(job) == job
    assert {*job.secrets} - {TOKEN} <= secrets
