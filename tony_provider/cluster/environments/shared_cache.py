"""The cache that users share: built environments in a directory of the store that an administrator owns.

Whoever could write there could run programs as all who use it. So the directory, and all from there down to an
environment, must belong to one owner who is not the job's user, and nobody else may write there; and what is taken from
it must have the content that its record names, which is read whole, once for each user.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.cluster.layout import Layout
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_text, write_atomically

_OTHERS_WRITE = 0o022
_STICKY = 0o1000  # of a directory: what is in it only its owner may rename
_LONGEST = 4096  # bytes of a note


@attrs.frozen
class SharedCache:
    """As the user of a job has it. All methods block, and raise StorageError.

    :param root: URI of the directory.
    :param own: the staging directory, where it is noted what this user has read.
    """

    storage: Storage
    root: str
    user: str
    own: Layout

    def holds(self, uri: str) -> bool:
        """Whether a file is there, by its path: one file system may go by several names."""
        return uris.parse(uri).path.startswith(f"{uris.parse(self.root).path}/")

    def problems(self, uri: str) -> Iterator[str]:
        """Who could have changed what is there, beside an administrator."""
        root = self.storage.status(self.root)
        if root.owner == self.user:
            yield f"the shared cache {self.root} must be an administrator's, and is that of the job's user, {self.user}"
        for status in self._on_the_way(uri):
            is_above = len(status.path) < len(root.path)
            if not is_above and status.owner != root.owner:
                yield f"{status.path} in the shared cache is {status.owner}'s, and not {root.owner}'s as the cache"
            elif self._others_write(status) and not (is_above and (status.permission or 0) & _STICKY):
                yield f"others than {status.owner} may write to {status.path}, so the shared cache is not to be trusted"

    def _others_write(self, status: FileStatus) -> bool:
        return status.permission is None or bool(status.permission & _OTHERS_WRITE)

    def is_checked(self, archive: FileStatus) -> bool:
        """Whether this user has read the content already, and nothing has been written since."""
        try:
            return read_text(self.storage, self._note(archive), length=_LONGEST) == _version(archive)
        except StorageNotFound:
            return False

    def note_checked(self, archive: FileStatus) -> None:
        """Note that the content was read, and is what its record names."""
        write_atomically(self.storage, self._note(archive), _version(archive).encode())

    def _note(self, archive: FileStatus) -> str:
        """Beside this user's own environments: what is not used for long goes with them."""
        return uris.join(self.own.environments_dir, uris.name(uris.parent(archive.path)), "checked")

    def _on_the_way(self, uri: str) -> Iterator[FileStatus]:
        """From the store's root down to it."""
        at = str(attrs.evolve(uris.parse(self.root), path="/"))
        yield self.storage.status(at)
        for part in uris.parse(uri).path.strip("/").split("/"):
            at = uris.join(at, part)
            yield self.storage.status(at)


def _version(archive: FileStatus) -> str:
    return f"{archive.path} {archive.size} {archive.modified_ms}"
