"""The fingerprint of a job: a hash for each thing that its checkpoints depend on. Another one means another training.

Commands, environment, code and data are in it. Memory, processors, queue, instances, timeouts, priorities and labels
are not: they decide how fast a training is, not what becomes of it. Side-cars train nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from tony_provider.cluster.sources import Sources
from tony_provider.runtime.spec.images import image_of
from tony_provider.runtime.spec.model import ContainerRuntime, Docker, JobSpec, Role
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, named_environments

_DIGITS = 16  # hexadecimal: plenty against chance


def fingerprint(job: JobSpec, sources: Sources) -> dict[str, str]:
    """The job's hashes, by the keys of the job specification; a directory has one hash.

    Values cannot be read from it.
    """
    return {key: _hash(value) for key, value in sorted({**_words(job), **_contents(job, sources)}.items())}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The keys of which two fingerprints differ."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def _words(job: JobSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"framework": job.framework}
    for key, task_type, environment in named_environments(job):
        if kind_of(environment) is EnvironmentKind.DIRECTORY and not _is_aside(job, task_type):
            found[key] = environment
    found.update(_image("docker", job.docker))
    found.update({f"env.{name}": value for name, value in job.env.items()})
    found.update({f"inputs.{name}": each.paths for name, each in job.inputs.items()})
    for name, task in job.tasks.items():
        if job.role(name) is not Role.SIDECAR:
            found[f"tasks.{name}.command"] = task.command
            found.update({f"tasks.{name}.env.{variable}": value for variable, value in task.env.items()})
            found.update(_image_of_its_own(job, name))
    return found


def _image(path: str, docker: Docker | None) -> dict[str, Any]:
    """What of an image says what is trained; in which network it runs, or as whom, does not."""
    if docker is None or docker.runtime is ContainerRuntime.NONE:
        return {}
    return {f"{path}.image": docker.image, f"{path}.mounts": docker.mounts or []}


def _image_of_its_own(job: JobSpec, task_type: str) -> dict[str, Any]:
    """Of a task type that has another image than the job says, or none."""
    path = f"tasks.{task_type}.docker"
    own, of_job = _image(path, image_of(job, task_type)), _image(path, job.docker)
    return {} if own == of_job else own or {f"{path}.image": None}


def _contents(job: JobSpec, sources: Sources) -> dict[str, list[Any]]:
    """Files of this machine by their content; of those on the store nobody knows it without reading them all."""
    found: dict[str, list[Any]] = defaultdict(list)
    for source in sources.local:
        if not _is_aside(job, source.task_type):
            found[source.key].append([source.name, [source.sha256]])
    for stored in sources.stored:
        if not _is_aside(job, stored.task_type):
            of_store = stored.resource
            found[stored.key].append([stored.name, [of_store.uri, of_store.size, of_store.modified_ms]])
    # Once, where several task types have it of the same entry.
    return {key: [each for each, _ in groupby(sorted(contents))] for key, contents in found.items()}


def _is_aside(job: JobSpec, task_type: str | None) -> bool:
    """Whether it is a side-car's own."""
    return task_type is not None and job.role(task_type) is Role.SIDECAR


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]
