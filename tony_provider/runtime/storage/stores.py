"""Open the store of a URI, and remove leftovers of unfinished writes."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import FileStatus, SharedFiles, Storage, is_temporary, list_existing
from tony_provider.runtime.storage.local import LocalStorage, local_path
from tony_provider.runtime.storage.object_store import ACCESS_KEY, ObjectStorage, overridden
from tony_provider.runtime.storage.object_store import SCHEMES as OBJECT_STORES
from tony_provider.runtime.storage.webhdfs.store import SCHEMES, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import Negotiate, WebHdfsConfig


def open_storage(
    uri: str,
    *,
    webhdfs: Optional[WebHdfsConfig] = None,
    delegation_token: Optional[str] = None,
    negotiate: Optional[Negotiate] = None,
    shared: Optional[SharedFiles] = None,
    others: Optional[Mapping[str, WebHdfsStorage]] = None,
    confined: bool = False,
) -> Storage:
    """Return the store of ``uri``: HDFS, or the local disk (``file://`` or a bare path).

    ``shared``: files that other users may read, only for HDFS.
    ``others``: storages of other HDFS file systems, by authority. The returned store also serves their URIs.
    ``confined``: reject reads below ``uri`` if a symbolic link leads out of it. Only for the local disk.

    Does not connect to the store yet. The caller closes the result. Raises StorageInvalidPath, and StorageUnsupported
    for an HDFS URI without ``webhdfs`` and for other schemes.
    """
    scheme = uris.scheme(uri)
    if scheme == "file":
        return LocalStorage.confined_to(local_path(uri)) if confined else LocalStorage()
    if scheme in OBJECT_STORES:
        why = "only inputs and outputs can be on an object store"
        raise errors.StorageUnsupported(uri, "open", why, "use hdfs://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in (SCHEMES[0], *OBJECT_STORES, "file"))
        raise errors.StorageUnsupported(uri, "open", f"{scheme}:// is not supported here", f"use {known}")
    if webhdfs is None:
        raise errors.StorageUnsupported(
            uri, "open", "no WebHDFS addresses are known", "name a WebHDFS connection in the tony connection"
        )
    return WebHdfsStorage(webhdfs, delegation_token=delegation_token, negotiate=negotiate, shared=shared, others=others)


class JobStores:
    """The stores that a job uses: its own store, the local disk, and buckets of object stores. Opens each once."""

    def __init__(self, own: Storage, own_uri: str, variables: Optional[Mapping[str, str]] = None) -> None:
        """``own``: the already open store of ``own_uri``, which ``close`` leaves open.

        ``variables``: variables of the job. They override the access to object stores that ``own`` names.
        """
        self._opened = {_place(own_uri): own}
        self._own = own
        self._variables = overridden(own.object_store_variables, variables or {})
        self._lock = threading.Lock()

    def can_open(self, uri: str) -> bool:
        """Return False for an object store without an access key, which only nodes with a role can read."""
        return uris.scheme(uri) not in OBJECT_STORES or bool(self._variables.get(ACCESS_KEY))

    def of(self, uri: str) -> Storage:
        """Return the store of a URI. Raises StorageUnsupported, StorageInvalidPath."""
        place = _place(uri)
        with self._lock:
            if place not in self._opened:
                is_object = uris.scheme(uri) in OBJECT_STORES
                self._opened[place] = ObjectStorage.open(uri, self._variables) if is_object else open_storage(uri)
            return self._opened[place]

    def close(self) -> None:
        """Close the stores that this object opened."""
        for storage in self._opened.values():
            if storage is not self._own:
                storage.close()


def _place(uri: str) -> str:
    """Return the bucket of an object store's URI, otherwise the scheme."""
    parsed = uris.parse(uri)
    return f"{parsed.scheme}://{parsed.authority}" if parsed.scheme in OBJECT_STORES else parsed.scheme


# Names of directories that an unfinished ``publish_directory`` of a model or export may leave.
_ON_ITS_WAY = re.compile(rf"({contract.MODEL_DIR}|{contract.export_name(0)[:-1]}\d+)\.tmp-[0-9a-f]+")


def is_leftover(status: FileStatus) -> bool:
    """Return whether a file or directory is from an unfinished write, which may still be running."""
    return is_temporary(status.name) or (status.is_directory and _ON_ITS_WAY.fullmatch(status.name) is not None)


def leftovers(storage: Storage, uri: str, *, without: Collection[str] = ()) -> Iterator[FileStatus]:
    """Yield the leftovers below a directory. ``without``: names of direct subdirectories to skip.

    Does not follow symbolic links, which may lead anywhere. Raises StorageError.
    """
    left, apart = [uri], without
    while left:
        for status in list_existing(storage, left.pop()):
            if is_leftover(status):
                yield status
            elif status.is_directory and not status.is_link and status.name not in apart:
                left.append(status.path)
        apart = ()


def remove_leftovers(storage: Storage, uri: str, *, without: Collection[str] = ()) -> int:
    """Remove the leftovers below a directory, and return their number. Raises StorageError.

    Call this function only if no process writes there any more, because a write fails if its temporary file is removed.
    """
    found = list(leftovers(storage, uri, without=without))
    for status in found:
        storage.remove(status.path, recursive=status.is_directory)
    return len(found)
