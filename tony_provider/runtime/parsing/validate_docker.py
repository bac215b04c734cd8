"""What the keys ``docker`` of a job, its master and its task types must be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.spec.images import HOST_NETWORK, MASTERS_OWN, NO_MASTER_THERE, images, is_dockers, own_keys
from tony_provider.runtime.spec.model import ContainerRuntime, Docker, JobSpec
from tony_provider.runtime.spec.problems import NOT_GIVEN, Problem, child, item

JOBS_OWN = "docker"  # the path of the job's, under those of the types

# YARN's own (DockerLinuxContainerRuntime); a name that it does not take it refuses when the container is to start.
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9_./-]+(?::\w[\w.-]*)?(?:@sha256:[a-z0-9]{12,64})?", re.ASCII
)
_PATH = r"/[^:,;\s\"'`$\\{}]*"  # without what YARN's lists, and the shell that sets the variables, have a meaning for
_MOUNT = re.compile(rf"{_PATH}:{_PATH}(?::(?:ro|rw)(?:\+r?(?:shared|slave|private))?)?")
_TMPFS = re.compile(_PATH)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of a network, and of a runtime of Docker's
_OF_RUNC = frozenset({"image", "mounts", "runtime"})


def docker_problems(job: JobSpec) -> Iterator[Problem]:
    """What is wrong with the images that containers are to run in."""
    for path, docker in own_keys(job).items():
        yield from _values(path, docker)
        yield from _contradictions(path, docker)
    every = images(job)
    told: dict[str, Problem] = {}  # what is wrong with the job's own is so with every kind of container that keeps it
    for path, image in every.items():
        for problem in _as_a_whole(job, path, image):
            told.setdefault(problem.path, problem)
    yield from told.values()
    if job.docker is not None and job.docker.client_config and not any(map(is_dockers, every.values())):
        yield Problem("docker.client_config", job.docker.client_config, "means nothing: no container is Docker's")


def _values(path: str, docker: Docker) -> Iterator[Problem]:
    if docker.image is not None and not _IMAGE.fullmatch(docker.image):
        yield Problem(
            child(path, "image"),
            docker.image,
            "must be an image's name that YARN takes: registry/name:tag or registry/name@sha256:…, in lower case",
        )
    yield from _each(child(path, "mounts"), docker.mounts, _MOUNT, "SOURCE:TARGET:MODE, absolute paths and ro or rw")
    yield from _each(child(path, "tmpfs"), docker.tmpfs, _TMPFS, "an absolute path")
    for name in ("network", "oci_runtime"):
        value = getattr(docker, name)
        if value is not None and not _NAME.fullmatch(value):
            yield Problem(child(path, name), value, "must be a name of letters, digits, _, . and -")
    if docker.client_config is not None and not (docker.client_config.strip() and docker.client_config.isprintable()):
        yield Problem(child(path, "client_config"), docker.client_config, "must be a path or URI")


def _each(path: str, values: Optional[Sequence[str]], pattern: re.Pattern[str], form: str) -> Iterator[Problem]:
    for index, value in enumerate(values or ()):
        if not pattern.fullmatch(value):
            yield Problem(item(path, index), value, f"must be {form}, without blanks and any of , ; \" ' ` $ \\ {{ }}")


def _contradictions(path: str, docker: Docker) -> Iterator[Problem]:
    given = _given(docker)
    if docker.runtime is ContainerRuntime.NONE:
        for name in given - {"runtime"}:
            yield Problem(child(path, name), getattr(docker, name), "means nothing with runtime: none")
    if docker.client_config is not None and path != JOBS_OWN:
        yield Problem(
            child(path, "client_config"),
            docker.client_config,
            f"is the job's: {JOBS_OWN}.client_config, which may hold the credentials of any number of registries",
        )


def _as_a_whole(job: JobSpec, path: str, docker: Optional[Docker]) -> Iterator[Problem]:
    """What is wrong with the keys that one kind of container has, the job's and its own."""
    if docker is None:
        return
    own = own_keys(job).get(path)

    def place(name: str) -> str:
        return child(path if own is not None and getattr(own, name) is not None else JOBS_OWN, name)

    if docker.image is None:
        yield Problem(child(path if own else JOBS_OWN, "image"), NOT_GIVEN, "is required")
    if docker.runtime is ContainerRuntime.RUNC:
        for name in sorted(_given(docker) - _OF_RUNC):
            yield Problem(place(name), getattr(docker, name), "YARN's runc has image and mounts only")
        for mount in docker.mounts or ():
            if "+" in mount.rpartition(":")[2]:
                yield Problem(place("mounts"), docker.mounts, "YARN's runc mounts ro or rw, and no other way")
    if docker.network == "none":
        yield Problem(place("network"), docker.network, "without a network no task reaches its application master")
    elif path == MASTERS_OWN and docker.network not in (None, HOST_NETWORK):
        yield Problem(place("network"), docker.network, NO_MASTER_THERE)


def _given(docker: Docker) -> set[str]:
    return {field.name for field in attrs.fields(Docker) if getattr(docker, field.name) is not None}
