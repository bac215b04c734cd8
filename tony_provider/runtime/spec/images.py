"""Which image the containers of a job run in: a task type's ``docker`` goes over the job's, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import attrs

from tony_provider.runtime.spec.model import TENSORBOARD, ContainerRuntime, Docker, JobSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.spec.tensorboard import without_its_task

_MASTER = "am"
MASTERS_OWN = f"{_MASTER}.docker"  # the path of the application master's
HOST_NETWORK = "host"  # Docker's name for the node's own
NO_MASTER_THERE = (
    "tasks and YARN's proxy reach an application master at its node's address only; give it the node's network, "
    "am: {docker: {network: host}}, or no image, am: {docker: false}"
)


def image_of(job: JobSpec, task_type: str) -> Optional[Docker]:
    """What the containers of a task type run in; None: they are plain processes. Raises KeyError for another type."""
    return _laid_over(job.docker, job.tasks[task_type].docker)


def image_of_master(job: JobSpec) -> Optional[Docker]:
    """What the application master runs in; None: it is a plain process."""
    return _laid_over(job.docker, job.am.docker)


def own_keys(job: JobSpec) -> dict[str, Docker]:
    """Every ``docker`` that a job gives, by its path."""
    given = {"docker": job.docker, **{child(place, "docker"): own for place, own in _places(job).items()}}
    return {path: docker for path, docker in given.items() if docker is not None}


def images(job: JobSpec) -> dict[str, Optional[Docker]]:
    """What each kind of container runs in, by the path of the key ``docker`` that may say so for it alone."""
    return {child(place, "docker"): _laid_over(job.docker, own) for place, own in _places(job).items()}


def is_dockers(image: Optional[Docker]) -> bool:
    """Whether Docker starts it."""
    return image is not None and image.runtime is not ContainerRuntime.RUNC


def _places(job: JobSpec) -> Mapping[str, Optional[Docker]]:
    """The task of the key ``tensorboard``, where it stands among the others, is told by the key."""
    tasks = {child("tasks", name): task.docker for name, task in without_its_task(job).tasks.items()}
    tensorboard = {TENSORBOARD: job.tensorboard.docker} if job.tensorboard else {}
    return {_MASTER: job.am.docker, **tasks, **tensorboard}


def _laid_over(below: Optional[Docker], own: Optional[Docker]) -> Optional[Docker]:
    if below is not None and below.runtime is ContainerRuntime.NONE:
        below = None
    given = {} if own is None else attrs.asdict(own, recurse=False, filter=lambda _, value: value is not None)
    if below is None and not given:
        return None
    merged = attrs.evolve(below or Docker(), **given)
    return None if merged.runtime is ContainerRuntime.NONE else merged
