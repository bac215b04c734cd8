"""Staging of files on the store, once per content: ``cache/<sha256>/<name>`` below the staging directory.

Many jobs may stage at once: a file appears whole under its content's hash or not at all, and the loser of a race uses
the winner's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs

from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.known_contents import sha256_of_stored
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.sources import LocalSource, stored_resource
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotFound
from tony_provider.runtime.storage.helpers import upload

log = logging.getLogger(__name__)

# As NodeManagers hand it to tasks, who may run it and not change it; local ones see this very file, as later jobs do.
_CACHED_FILE = 0o500
_PARALLEL = 4  # uploads at once: a directory of many small files waits for the NameNode, not for bytes


@attrs.define
class StagingCounts:
    """How many files, and bytes, a staging has uploaded, and how many were there already."""

    uploaded: int = 0
    uploaded_bytes: int = 0
    reused: int = 0
    reused_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.uploaded} files uploaded ({self.uploaded_bytes} bytes), "
            f"{self.reused} reused ({self.reused_bytes} bytes)"
        )


def places(layout: Layout, sources: Iterable[LocalSource]) -> Iterator[tuple[LocalSource, str]]:
    """Yield each source with its URI on the store. Sources with the same content and file name share a URI."""
    for source in sources:
        yield source, layout.cached(source.sha256, source.path.name)


class Stager:
    """Uploads files to the staging directory's cache, unless their content is there already."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout
        self.counts = StagingCounts()

    def stage(self, sources: Iterable[LocalSource]) -> list[LocalizedResource]:
        """Upload all sources; returns them as containers get them, in their order.

        Raises StagingFailed; what was complete by then stays for the next job.
        """
        placed = list(places(self._layout, sources))
        once = {uri: source for source, uri in placed}  # what several task types have is staged for all of them
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="tony-staging") as pool:
            futures = {uri: pool.submit(self._stage_one, source, uri) for uri, source in once.items()}
            try:
                staged = {uri: future.result() for uri, future in futures.items()}
            except (StorageError, OSError) as error:
                for future in futures.values():
                    future.cancel()
                raise StagingFailed(f"the job's files could not be staged: {error}") from error
        for uri, (_, was_there) in staged.items():
            if was_there:
                self.counts.reused += 1
                self.counts.reused_bytes += once[uri].size
            else:
                self.counts.uploaded += 1
                self.counts.uploaded_bytes += once[uri].size
        return [stored_resource(staged[uri][0], each.name, each.kind, each.sha256) for each, uri in placed]

    def _stage_one(self, source: LocalSource, uri: str) -> tuple[FileStatus, bool]:
        """What is at the URI then, and whether it was there before."""
        status = self._usable(uri, source)
        was_there = status is not None
        if status is None:
            status = self._upload(uri, source)
        return status, was_there

    def _usable(self, uri: str, source: LocalSource) -> FileStatus | None:
        """What is there under this content's name, if it can be this content."""
        try:
            status = self._storage.status(uri)
        except StorageNotFound:
            return None
        if self._holds(status, source):
            return status
        log.warning("%s is not what was staged there: replacing it", uri)
        self._storage.remove(uri)
        return None

    def _holds(self, status: FileStatus, source: LocalSource) -> bool:
        """Return whether a cached file has the source's content, because programs of former jobs can change it."""
        return status.size == source.size and sha256_of_stored(self._storage, status) == source.sha256

    def _upload(self, uri: str, source: LocalSource) -> FileStatus:
        self._check_unchanged(source)
        try:
            upload(self._storage, source.path, uri, permission=_CACHED_FILE)
            status = self._storage.status(uri)
        except StorageExists:
            found = self._usable(uri, source)
            if found is None:
                raise
            return found
        except BaseException:
            self._remove_if_empty(uris.parent(uri))
            raise
        try:
            self._check_unchanged(source)
        except StagingFailed:
            self._storage.remove(uri)
            raise
        log.info("Uploaded %s (%d bytes) as %s", source.path, source.size, uri)
        return status

    def _check_unchanged(self, source: LocalSource) -> None:
        stat = source.path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (source.size, source.modified_ns):
            raise StagingFailed(f"{source.path} was changed while it was being staged; start the task again")

    def _remove_if_empty(self, directory: str) -> None:
        try:
            self._storage.remove(directory)
        except StorageError as error:  # on top of the error that brought us here, which is the one to report
            log.debug("Leaving %s: %s", directory, error)
