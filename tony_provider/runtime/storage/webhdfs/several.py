"""Several HDFS behind one storage: of a cluster with more than one nameservice, or of another cluster beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Optional

from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Before,
    FileStatus,
    QuotaRoom,
    Source,
    Storage,
    right_away,
)
from tony_provider.runtime.storage.readers import Readers, Right
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage


class SeveralHdfs(Storage):
    """Each URI goes to the HDFS that it names; ``own`` has those that none of the others is named by."""

    def __init__(self, own: WebHdfsStorage, others: Mapping[str, WebHdfsStorage]) -> None:
        """``others``: by what their URIs name them by. All are closed with this one."""
        self._own = own
        self._others = {name.lower(): each for name, each in others.items()}

    def status(self, uri: str) -> FileStatus:
        return self._of(uri).status(uri)

    def list(self, uri: str) -> list[FileStatus]:
        return self._of(uri).list(uri)

    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        return self._of(uri).open_read(uri, offset=offset, length=length)

    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
        before_it_appears: Before = right_away,
    ) -> int:
        return self._of(uri).write(
            uri, source, overwrite=overwrite, permission=permission, before_it_appears=before_it_appears
        )

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        if self._of(source) is not self._of(target):
            raise errors.StorageInvalidPath(source, "rename", f"{target} is on another HDFS")
        self._of(source).rename(source, target, overwrite=overwrite)

    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        self._of(uri).make_directories(uri, permission=permission)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        return self._of(uri).remove(uri, recursive=recursive)

    def checksum(self, uri: str) -> Optional[str]:
        return self._of(uri).checksum(uri)

    def version(self, uri: str) -> Optional[str]:
        return self._of(uri).version(uri)

    def quota_room(self, uri: str) -> Optional[QuotaRoom]:
        return self._of(uri).quota_room(uri)

    def share(self, uri: str, readers: Readers, right: Right) -> None:
        self._of(uri).share(uri, readers, right)

    def let_pass(self, status: FileStatus, readers: Readers) -> None:
        self._of(status.path).let_pass(status, readers)

    def take_token(self, token: str, name: str = "") -> None:
        if not name:
            self._own.take_token(token)
        elif (other := self._others.get(name.lower())) is not None:
            other.take_token(token)

    @property
    def clock_ahead(self) -> Optional[float]:
        return self._own.clock_ahead

    def close(self) -> None:
        for each in (self._own, *self._others.values()):
            each.close()

    def _of(self, uri: str) -> WebHdfsStorage:
        return self._others.get(uris.parse(uri).authority.lower(), self._own)
