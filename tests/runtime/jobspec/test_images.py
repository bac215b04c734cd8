"""Which image each kind of container runs in, of the job's ``docker`` and its own."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.runtime.jobspec.container_content import (
    docker_keys,
    image_of,
    image_of_master,
    images,
    is_docker_image,
)
from tony_provider.runtime.jobspec.model import ContainerRuntime, Docker, JobSpec
from tony_provider.runtime.parsing.parse import parse_job

TASKS = {"worker": {"command": "train"}, "ps": {"command": "serve"}}


def job(docker: Any = None, **own: Any) -> JobSpec:
    """``own``: of the task types, of the master (am), and of TensorBoard."""
    tasks = {name: {**task, "docker": own.get(name)} for name, task in TASKS.items()}
    plain = {"framework": "tensorflow", "tasks": tasks, "docker": docker, "am": {"docker": own.get("am")}}
    return parse_job({**plain, "tensorboard": {"docker": own.get("tensorboard")}})


def test_a_job_without_any_runs_as_plain_processes() -> None:
    assert set(images(job()).values()) == {None}
    assert docker_keys(job()) == {}


def test_the_jobs_is_that_of_every_container() -> None:
    mine = Docker("tf:2", ["/data:/data:ro"])
    assert images(job({"image": "tf:2", "mounts": ["/data:/data:ro"]})) == {
        "am.docker": mine,
        "tasks.worker.docker": mine,
        "tasks.ps.docker": mine,
        "tensorboard.docker": mine,
    }


@pytest.mark.parametrize("off", [False, {"runtime": "none"}])
def test_a_types_own_goes_over_it_key_by_key(off: Any) -> None:
    common = {"image": "tf:2", "mounts": ["/data:/data:ro"], "network": "ml"}
    made = job(common, worker={"image": "tf-gpu:2", "oci_runtime": "nvidia"}, ps={"mounts": []}, am=off)
    assert image_of(made, "worker") == Docker("tf-gpu:2", ["/data:/data:ro"], network="ml", oci_runtime="nvidia")
    assert image_of(made, "ps") == Docker("tf:2", [], network="ml")
    assert image_of_master(made) is None
    assert image_of(made, "tensorboard") == Docker("tf:2", ["/data:/data:ro"], network="ml")
    assert set(docker_keys(made)) == {"docker", "tasks.worker.docker", "tasks.ps.docker", "am.docker"}


def test_a_type_has_an_image_where_the_job_has_none() -> None:
    for docker in (None, False):
        made = job(docker, worker={"image": "tf:2"})
        assert image_of(made, "worker") == Docker("tf:2")
        assert (image_of(made, "ps"), image_of_master(made)) == (None, None)


def test_who_starts_it() -> None:
    made = job({"image": "tf:2"}, worker={"runtime": "runc"}, ps=False)
    assert not is_docker_image(image_of(made, "worker"))
    assert not is_docker_image(image_of(made, "ps"))
    assert is_docker_image(image_of_master(made))
    assert image_of(made, "worker") == Docker("tf:2", runtime=ContainerRuntime.RUNC)
