"""What the connection lets jobs ask for, whoever writes them: enforced on the whole job, before anything is staged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.file_roots import FileRoots
from tony_provider.runtime.parsing.overrides import Patterns, dotted, leaves
from tony_provider.runtime.quantities import amount
from tony_provider.runtime.resource_names import MEMORY
from tony_provider.runtime.spec.images import own_keys
from tony_provider.runtime.spec.model import Duration, JobSpec, Memory, TaskSpec
from tony_provider.runtime.spec.names import USER, USER_RULE
from tony_provider.runtime.spec.problems import child, shown


@attrs.frozen
class Policy:
    """The limits of one connection. None is no limit (``file_roots``: the default), an empty list allows no value."""

    conn_id: str = ""
    proxy_users: Sequence[str] | None = None  # patterns, as those of queues and images
    queues: Sequence[str] | None = None
    images: Sequence[str] | None = None
    file_roots: Sequence[Path] | None = None  # directories of the worker
    allowed_overrides: Sequence[str] | None = None
    max_tasks: int | None = None  # of a job
    max_memory: Memory | None = None  # MiB, of a job: all its containers together
    max_vcores: int | None = None  # likewise
    max_gpus: int | None = None  # likewise
    max_container_memory: Memory | None = None  # MiB
    max_container_vcores: int | None = None
    max_container_gpus: int | None = None
    max_lifetime: Duration | None = None  # seconds
    max_priority: int | None = None

    def user_problem(self, proxy_user: str | None) -> str:
        """Return why the connection may not submit as this user, or an empty string if it may."""
        if proxy_user is None:
            return ""
        if not USER.fullmatch(proxy_user):
            return f"proxy_user: {USER_RULE} (got {shown(proxy_user)})"
        if self.proxy_users is None or _matches(proxy_user, self.proxy_users):
            return ""
        return self._not_among("proxy_user", proxy_user, "proxy_users", self.proxy_users)

    def problems(self, job: JobSpec, overrides: Mapping[str, Any] | None, *, has_queues: bool) -> list[str]:
        """What of a job, given with the connection's defaults, is more than the connection allows."""
        return [
            *self._overrides(overrides or {}),
            *self._names(job, has_queues=has_queues),
            *self._sizes(job),
            *self._limits(job),
        ]

    def roots(self, default: Sequence[Path], made: Sequence[Path] = ()) -> FileRoots:
        """Return the directories for a job's files: the connection's ``file_roots``, otherwise ``default``.

        ``made``: files that were generated for the submission, so exempt.
        """
        if self.file_roots is None:
            return FileRoots(self.conn_id, default, made=made)
        return FileRoots(self.conn_id, self.file_roots, of_connection=True, made=made)

    def _overrides(self, overrides: Mapping[str, Any]) -> Iterator[str]:
        if self.allowed_overrides is None:
            return
        patterns = Patterns(self.allowed_overrides)
        for path, value in leaves(overrides):
            if not patterns.allow(path):
                given = f"what overrides lay there ({shown(value)})"
                yield f"{dotted(path)}: {given} {self._allows('allowed_overrides', self.allowed_overrides)}"

    def _names(self, job: JobSpec, *, has_queues: bool) -> Iterator[str]:
        if self.queues is not None and (has_queues or job.queue is not None):
            queue = job.queue or ""
            if not _matches(queue, self.queues):
                yield self._not_among("queue", queue or "that of YARN's own placement", "queues", self.queues)
        for path, docker in own_keys(job).items():
            if self.images is not None and docker.image is not None and not _matches(docker.image, self.images):
                yield self._not_among(child(path, "image"), docker.image, "images", self.images)

    def _sizes(self, job: JobSpec) -> Iterator[str]:
        containers = _containers(job)
        for path, _, each in containers:
            yield from self._more(child(path, "memory"), each.memory, "max_container_memory", _mebibytes)
            yield from self._more(child(path, "vcores"), each.vcores, "max_container_vcores")
            yield from self._more(child(path, "gpus"), each.gpus, "max_container_gpus")
        yield from self._more("tasks", job.size, "max_tasks")
        for name, show in (("memory", _mebibytes), ("vcores", str), ("gpus", str)):
            total = sum(number * getattr(each, name) for _, number, each in containers)
            yield from self._more(f"{name} of all containers together", total, f"max_{name}", show)

    def _limits(self, job: JobSpec) -> Iterator[str]:
        yield from self._more("timeouts.lifetime", job.timeouts.lifetime, "max_lifetime", _seconds)
        yield from self._more("priority", job.priority, "max_priority")

    def _more(self, path: str, value: Any, limit: str, show: Any = str) -> Iterator[str]:
        most = getattr(self, limit)
        if most is not None and value is not None and value > most:
            yield f"{path}: {show(value)} is more than the connection {self.conn_id!r} allows ({limit}: {show(most)})"

    def _not_among(self, path: str, value: str, limit: str, allowed: Sequence[str]) -> str:
        said = f"{path}: {value}"  # what a form says may hold anything
        return f"{said if said.isprintable() else ascii(said)} {self._allows(limit, allowed)}"

    def _allows(self, limit: str, allowed: Sequence[str]) -> str:
        named = ", ".join(allowed) or "none"
        return (
            f"is not what the connection {self.conn_id!r} allows ({limit}: {named}), which its administrator may change"
        )


def _matches(value: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def _containers(job: JobSpec) -> list[tuple[str, int, TaskSpec]]:
    """Path, number and largest size of each kind of container; the application master's too."""
    master = TaskSpec(memory=job.am_memory, vcores=job.am.vcores)
    tasks = [(child("tasks", name), task.most_instances, _grown(job, task)) for name, task in job.tasks.items()]
    return [("am", 1, master), *tasks]


def _grown(job: JobSpec, task: TaskSpec) -> TaskSpec:
    """As large as its containers may become: more memory after a kill for it (``restart.memory_step``)."""
    if job.restart.memory_step is None:
        return task
    largest = job.restart.memory_limit or 2 * task.memory
    return attrs.evolve(task, memory=Memory(max(task.memory, largest)))


def _mebibytes(memory: int) -> str:
    return amount(MEMORY, memory)


def _seconds(time_span: float) -> str:
    return f"{time_span:g} s"
