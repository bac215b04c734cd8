"""The objects of the store and of this machine that a job names."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.named_resources import named_resources
from tony_provider.runtime.spec.problems import child, item
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, named_environments, parts


@attrs.frozen
class NamedObject:
    """A path or URI that a job names, and the key that names it."""

    key: str  # such as files[0] or inputs.clicks.paths[1]
    uri: str
    is_input: bool = False  # listed and read by the job's tasks, and never copied from this machine


def named_objects(job: JobSpec) -> Iterator[NamedObject]:
    """Yield files, archives, environments, Docker credentials and inputs, but no directories of the nodes."""
    for resource in named_resources(job):
        yield NamedObject(resource.path, resource.resource.source)
    for key, _, environment in named_environments(job):
        if kind_of(environment) is not EnvironmentKind.DIRECTORY:
            yield from (NamedObject(key, part) for part in parts(environment))
    if job.docker is not None and job.docker.client_config is not None:
        yield NamedObject("docker.client_config", job.docker.client_config)
    for name, spec in job.inputs.items():
        for index, path in enumerate(spec.paths):
            yield NamedObject(item(child(child("inputs", name), "paths"), index), path, is_input=True)
