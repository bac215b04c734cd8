"""Opening the store that a URI is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.fsspec_store import FsspecStorage
from tony_provider.runtime.storage.local import LocalStorage, local_path
from tony_provider.runtime.storage.readers import SharedFiles
from tony_provider.runtime.storage.webhdfs.config import Negotiate, WebHdfsConfig
from tony_provider.runtime.storage.webhdfs.store import SCHEMES, WebHdfsStorage

# Of fsspec's. What somebody else has said is not to be a file of this machine is told by the scheme.
_OTHER_WORDS_FOR_FILE = ("local", "asynclocal")


def open_storage(
    uri: str,
    *,
    webhdfs: Optional[WebHdfsConfig] = None,
    delegation_token: Optional[str] = None,
    negotiate: Optional[Negotiate] = None,
    fsspec_options: Optional[Mapping[str, Any]] = None,
    shared: Optional[SharedFiles] = None,
    confined: bool = False,
) -> Storage:
    """The store that ``uri`` is in: HDFS, this machine (``file://`` or a bare path), or fsspec's of its scheme.

    ``shared``: files that others may read, too, where the store is HDFS; elsewhere they stay their owner's.
    ``confined``: on this machine's disk, what is read below ``uri`` must lie there after all links are followed.
    Nothing is asked of the store yet. Close what is returned. Raises StorageInvalidPath, and StorageUnsupported for an
    HDFS URI without ``webhdfs`` and for a scheme that no installed driver knows.
    """
    scheme = uris.scheme(uri)
    if scheme == "file":
        return LocalStorage.confined_to(local_path(uri)) if confined else LocalStorage()
    if scheme in _OTHER_WORDS_FOR_FILE:
        raise errors.StorageUnsupported(uri, "open", "it is another word for this machine's disk", "write file://")
    if scheme not in SCHEMES:
        return FsspecStorage(scheme, fsspec_options)
    if webhdfs is None:
        raise errors.StorageUnsupported(
            uri, "open", "no WebHDFS addresses are known", "name a WebHDFS connection in the tony connection"
        )
    return WebHdfsStorage(webhdfs, delegation_token=delegation_token, negotiate=negotiate, shared=shared)
