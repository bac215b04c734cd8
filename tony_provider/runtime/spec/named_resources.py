"""The files and archives that a job names, for all tasks or for those of a type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

import attrs

from tony_provider.runtime.spec.model import JobSpec, Resource
from tony_provider.runtime.spec.problems import child, item

FILES = "files"
ARCHIVES = "archives"


@attrs.frozen
class NamedResource:
    """An entry of ``files`` or ``archives``."""

    level: str  # the path of the job's level that has the list: empty, or such as tasks.worker
    kind: str  # FILES or ARCHIVES
    index: int
    resource: Resource
    task_type: Optional[str]  # whose containers get it; None: those of all

    @property
    def path(self) -> str:
        """Such as ``tasks.worker.files[0]``."""
        return item(child(self.level, self.kind), self.index)

    @property
    def key(self) -> str:
        """What a training is compared by, whatever the order of the list: such as ``tasks.worker.files.train.py``."""
        return f"{child(self.level, self.kind)}.{self.resource.target}"


def named_resources(job: JobSpec) -> Iterator[NamedResource]:
    """All of them, the job's first."""
    levels: list[tuple[str, Optional[str], list[Resource], list[Resource]]] = [("", None, job.files, job.archives)]
    levels += [(child("tasks", name), name, task.files, task.archives) for name, task in job.tasks.items()]
    for level, task_type, files, archives in levels:
        for kind, resources in ((FILES, files), (ARCHIVES, archives)):
            for index, resource in enumerate(resources):
                yield NamedResource(level, kind, index, resource, task_type)
