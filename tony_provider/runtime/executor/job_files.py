"""Verify and unpack the job's files in a container, and link them to the names that the job specifies.

The files come from the staging directory's cache and the node's cache, where other jobs of the same user can write.
Such jobs can also write into a container's directory before YARN uses the directory, because its name is predictable.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.launch.container_files import generated_names
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.local.unpacked import unpack_once
from tony_provider.runtime.sha256 import sha256_of

log = logging.getLogger(__name__)

_LAUNCH_SCRIPT = "launch_container.sh"
# NodeManagers may make these before the launch script.
_OF_NODE_MANAGER = ("container_tokens", "default_container_executor*.sh", "tmp", "yarn_provided.*", ".*.crc")


class ChangedFileError(Exception):
    """A file in the container does not have the content that was submitted."""


@attrs.define
class JobFiles:
    """Puts the job's files into their places once, before the job's own program runs for the first time.

    Containers of one application share unpacked archives on a node only if all its task types get the same secrets,
    because a program can change the unpacked files that the next container runs.
    """

    _directory: Path  # the container's
    _resources: Sequence[LocalizedResource]
    _sharing_key: Optional[bytes] = attrs.field(default=None, repr=False)  # None: nothing is shared
    _done: bool = attrs.field(default=False, init=False)

    @classmethod
    def of(cls, container: ExecutorContainer) -> JobFiles:
        """Return the files of a container."""
        job, resources = container.job, container.description.resources_of(container.task_type)
        share = not any(job.secrets_withheld(task_type) for task_type in job.tasks)
        return cls(container.directory, resources, container.secrets.get(contract.SECRET_JOB_KEY) if share else None)

    def put(self, cancelled: threading.Event) -> None:
        """Verify, unpack and link each file. Blocks. Raises ChangedFileError, ArchiveError, Cancelled, OSError."""
        if self._done:
            return
        self._remove_planted()
        names = generated_names(self._resources)
        for uri, name in names.items():
            same = [each for each in self._resources if each.uri == uri]
            self._verify(same[0], self._directory / name, cancelled)
            for resource in same:
                self._link(resource, self._directory / name, cancelled)
        self._done = True

    def _remove_planted(self) -> None:
        """Remove what was in the container's directory before YARN started the container.

        Users can set the modification time of a file, but not the time of its last change.
        """
        made = [self._directory / name for name in (_LAUNCH_SCRIPT, contract.RUNTIME_FILE)]
        times = [path.lstat().st_ctime_ns for path in made if path.exists()]
        for path in self._directory.iterdir() if times else ():
            if path.lstat().st_ctime_ns >= min(times) or any(fnmatch(path.name, each) for each in _OF_NODE_MANAGER):
                continue
            log.warning("%s was in the container's directory before the container started: it is removed", path.name)
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if path.exists():
                raise ChangedFileError(f"{path.name} was in the container's directory before the container started")

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
            # The launcher has unpacked the environment if the node has no other Python.
            directory = self._directory / contract.RUNTIME_DIR / contract.PYTHON_ENV_DIR
            if resource.name != contract.PYTHON_ENV_DIR or not directory.is_dir():
                directory = self._unpacked(resource)
                unpack_once(file, directory, cancelled)
            file = directory
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file.resolve())

    def _unpacked(self, resource: LocalizedResource) -> Path:
        """Return the directory for the content of an archive, which containers of the application may share.

        No program of another application can make a shared directory beforehand, because a key is part of its name.
        """
        content = f"{resource.uri} {resource.size} {resource.modified_ms}".encode()
        above = self._directory.parent
        if self._sharing_key is None or not os.access(above, os.W_OK):
            return self._directory / contract.RUNTIME_DIR / "unpacked" / hashlib.sha256(content).hexdigest()[:32]
        return above / contract.UNPACKED_DIR / hmac.new(self._sharing_key, content, hashlib.sha256).hexdigest()[:32]
