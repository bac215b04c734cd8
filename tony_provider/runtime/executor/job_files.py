"""Verify and unpack the job's files in a container, and link them to the names that the job specifies.

The files come from the staging directory's cache and the node's cache, where other jobs of the same user can write.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.launch.container_files import generated_names
from tony_provider.runtime.local.unpacked import unpack_once
from tony_provider.runtime.sha256 import sha256_of


class ChangedFileError(Exception):
    """A file in the container does not have the content that was submitted."""


@attrs.define
class JobFiles:
    """Puts the job's files into their places once, before the job's own program runs for the first time.

    Containers of one application share unpacked archives on a node only if their task types get the same secrets,
    because a program can change the unpacked files that the next container runs.
    """

    _directory: Path  # the container's
    _resources: Sequence[LocalizedResource]
    _withheld: Sequence[str] = ()  # names of the secrets that this container does not get
    _done: bool = attrs.field(default=False, init=False)

    @classmethod
    def of(cls, container: ExecutorContainer) -> JobFiles:
        """Return the files of a container."""
        resources = container.description.resources_of(container.task_type)
        return cls(container.directory, resources, sorted(container.job.secrets_withheld(container.task_type)))

    def put(self, cancelled: threading.Event) -> None:
        """Verify, unpack and link each file. Blocks. Raises ChangedFileError, ArchiveError, Cancelled, OSError."""
        if self._done:
            return
        names = generated_names(self._resources)
        for uri, name in names.items():
            same = [each for each in self._resources if each.uri == uri]
            self._verify(same[0], self._directory / name, cancelled)
            for resource in same:
                self._link(resource, self._directory / name, cancelled)
        self._done = True

    def _verify(self, resource: LocalizedResource, file: Path, cancelled: threading.Event) -> None:
        if cancelled.is_set():
            raise Cancelled("verifying the job's files was cancelled")
        if resource.sha256 is None:
            return
        with file.open("rb") as content:
            if sha256_of(content) != resource.sha256:
                copy = file.resolve()
                if "filecache" in copy.parts:  # the NodeManager then fetches the file again
                    copy.unlink(missing_ok=True)
                raise ChangedFileError(
                    f"{resource.name} is not what was submitted: a program has changed {resource.uri} or this node's "
                    "copy after the submission. Programs of other jobs of the same user can do this. Submit the job "
                    "again: the submission replaces files that it has copied; build a changed environment again"
                )

    def _link(self, resource: LocalizedResource, file: Path, cancelled: threading.Event) -> None:
        target = self._directory / resource.name
        if resource.kind is ResourceKind.ARCHIVE:
            if target.is_dir():
                return  # the launcher has already unpacked it, because the node has no other suitable Python
            directory = self._unpacked(resource)
            unpack_once(file, directory, cancelled)
            file = directory
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file.resolve())

    def _unpacked(self, resource: LocalizedResource) -> Path:
        """Return the directory for the content of an archive, which containers of the application share."""
        content = f"{resource.uri} {resource.size} {resource.modified_ms} {' '.join(self._withheld)}"
        above = self._directory.parent
        root = above if os.access(above, os.W_OK) else self._directory
        return root / contract.UNPACKED_DIR / hashlib.sha256(content.encode()).hexdigest()[:32]
