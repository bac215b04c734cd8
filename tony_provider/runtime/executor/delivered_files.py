"""The files that a container got: whether they are what was submitted.

They come by way of the staging directory's cache and the node's, where other jobs of the same user can write.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import attrs

from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.sha256 import sha256_of


class ChangedFileError(Exception):
    """A file in the container is not the one that was submitted."""


@attrs.define
class DeliveredFiles:
    """Checks, once, the files of a container whose content the submission knows; archives come unpacked, and are not.

    Only before the job's own program runs for the first time: what it does to them later is its own affair.
    """

    _directory: Path  # the container's
    _resources: Sequence[LocalizedResource]
    _checked: bool = attrs.field(default=False, init=False)

    def check(self, cancelled: threading.Event) -> None:
        """Blocks. Raises ChangedFileError, Cancelled, OSError."""
        if self._checked:
            return
        for resource in self._resources:
            if cancelled.is_set():
                raise Cancelled("looking at the job's files was cancelled")
            if resource.kind is ResourceKind.FILE and resource.sha256 is not None:
                self._check(resource.name, resource.uri, resource.sha256)
        self._checked = True

    def _check(self, name: str, uri: str, sha256: str) -> None:
        with (self._directory / name).open("rb") as file:
            if sha256_of(file) != sha256:
                raise ChangedFileError(
                    f"{name} is not what was submitted: something has changed {uri}, or this node's copy of it, since. "
                    "Programs of other jobs may have done so that run as the same user; the next submission replaces "
                    "what is on the store"
                )
