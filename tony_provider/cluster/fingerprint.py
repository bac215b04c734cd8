"""The fingerprint of a job: a hash for each thing that its checkpoints depend on. Another one means another training.

Commands, environment, code and data are in it. Memory, processors, queue, instances, timeouts, priorities and labels
are not: they decide how fast a training is, not what becomes of it. Side-cars train nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tony_provider.cluster.sources import Sources, is_archived
from tony_provider.runtime import contract
from tony_provider.runtime.spec.model import JobSpec, Resource, Role

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
    if job.python_env is not None and not is_archived(job.python_env):
        found["python_env"] = job.python_env
    if job.docker is not None:
        found["docker.image"] = job.docker.image
        found["docker.mounts"] = job.docker.mounts
    found.update({f"env.{name}": value for name, value in job.env.items()})
    found.update({f"inputs.{name}": each.paths for name, each in job.inputs.items()})
    for name, task in job.tasks.items():
        if job.role(name) is not Role.SIDECAR:
            found[f"tasks.{name}.command"] = task.command
            found.update({f"tasks.{name}.env.{variable}": value for variable, value in task.env.items()})
    return found


def _contents(job: JobSpec, sources: Sources) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for name, content in sorted(_files(sources)):
        found[_key(job, name)].append([name, content])
    return found


def _files(sources: Sources) -> Iterator[tuple[str, list[Any]]]:
    """Files of this machine by their content; of those on the store nobody knows it without reading them all."""
    for source in sources.local:
        yield source.name, [source.sha256]
    for stored in sources.stored:
        yield stored.name, [stored.uri, stored.size, stored.modified_ms]


def _key(job: JobSpec, name: str) -> str:
    """Of the entry of the job that brings ``name`` into the working directory."""
    if name == contract.PYTHON_ENV_DIR:
        return contract.PYTHON_ENV_DIR
    kind = "archives" if _brought_by(job.archives, name) else "files"
    entry = _brought_by(job.archives, name) or _brought_by(job.files, name) or name
    return f"{kind}.{entry}"


def _brought_by(resources: Sequence[Resource], name: str) -> str | None:
    return next((each.target for each in resources if name == each.target or name.startswith(f"{each.target}/")), None)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]
