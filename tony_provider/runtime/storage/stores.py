"""Open the store of a URI, and remove leftovers of unfinished writes."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import FileStatus, SharedFiles, Storage, is_temporary, list_existing
from tony_provider.runtime.storage.fsspec_store import FsspecStorage
from tony_provider.runtime.storage.local import LocalStorage, local_path
from tony_provider.runtime.storage.webhdfs.store import SCHEMES, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import Negotiate, WebHdfsConfig

# Other fsspec schemes for the local disk. They are rejected, because checks of URIs recognize only file://.
_OTHER_WORDS_FOR_FILE = ("local", "asynclocal")


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
    """Return the store of ``uri``: HDFS, the local disk (``file://`` or a bare path), or a store with an fsspec driver.

    ``shared``: files that other users may read, only for HDFS.
    ``others``: storages of other HDFS file systems, by authority. The returned store also serves their URIs.
    ``confined``: reject reads below ``uri`` if a symbolic link leads out of it. Only for the local disk.

    Does not connect to the store yet. The caller closes the result. Raises StorageInvalidPath, and StorageUnsupported
    for an HDFS URI without ``webhdfs`` and for a scheme without an installed driver.
    """
    scheme = uris.scheme(uri)
    if scheme == "file":
        return LocalStorage.confined_to(local_path(uri)) if confined else LocalStorage()
    if scheme in _OTHER_WORDS_FOR_FILE:
        raise errors.StorageUnsupported(uri, "open", "this scheme is not supported for local files", "use file://")
    if scheme not in SCHEMES:
        return FsspecStorage(scheme)
    if webhdfs is None:
        raise errors.StorageUnsupported(
            uri, "open", "no WebHDFS addresses are known", "name a WebHDFS connection in the tony connection"
        )
    return WebHdfsStorage(webhdfs, delegation_token=delegation_token, negotiate=negotiate, shared=shared, others=others)


class JobStores:
    """The stores that a job uses: its own store, the local disk, and stores with an fsspec driver. Opens each once."""

    def __init__(self, own: Storage, own_uri: str) -> None:
        """``own``: the already open store of ``own_uri``, which ``close`` leaves open."""
        self._by_scheme = {uris.scheme(own_uri): own}
        self._opened: list[Storage] = []
        self._lock = threading.Lock()

    def of(self, uri: str) -> Storage:
        """Return the store of a URI. Raises StorageUnsupported for a scheme without an installed driver."""
        scheme = uris.scheme(uri)
        with self._lock:
            if scheme not in self._by_scheme:
                opened = open_storage(uri)
                self._opened.append(opened)
                self._by_scheme[scheme] = opened
            return self._by_scheme[scheme]

    def close(self) -> None:
        """Close the stores that this object opened."""
        for storage in self._opened:
            storage.close()


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
