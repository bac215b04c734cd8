"""Built environments on the store: ``cache/environments/<key>/`` below the staging directory.

The directory contains the archive, its record, and a file with the time of the last use by a job. The record is
written last, so an archive without a record is incomplete. The key is the hash of the build's inputs: requirements,
Python, machine.

Also contains the checks of the cache that all users share.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import attrs

from tony_provider.cluster.sources import sha256_of_stored
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import (
    PRIVATE_FILE,
    FileStatus,
    Storage,
    read_text,
    read_whole,
    upload,
    write_atomically,
)
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotFound, StorageTooLarge

log = logging.getLogger(__name__)

ARCHIVE_PREFIX = "tony-env-"  # start of an archive's name, by which submissions know that it has a record
_DIGITS = 32  # hash digits of an archive's content in its name
USED_FILE = "used"  # rewritten when a job is submitted
_ARCHIVE = 0o500  # same mode as other files in the cache
_SHARED_ARCHIVE, _SHARED_FILE, _SHARED_DIRECTORY = 0o555, 0o644, 0o755


class RecordMissing(Exception):  # noqa: N818 - named for what is wrong
    """A built environment has no readable record."""


@attrs.frozen
class BuiltEnvironments:
    """The built environments of one staging directory. All methods block, and raise StorageError."""

    storage: Storage
    layout: Layout
    shared: bool = False  # readable by all users

    def directory(self, key: str) -> str:
        return uris.join(self.layout.environments_dir, key)

    def find(self, key: str) -> str | None:
        """Return the URI of the archive with this key, or None if it was not built or no longer exists."""
        directory = self.directory(key)
        try:
            record = read_environment_record(self.storage, uris.join(directory, contract.ENVIRONMENT_FILE))
            uri = uris.join(directory, record.archive)
            return uri if self.storage.status(uri).size == record.size else None
        except (StorageNotFound, RecordMissing):
            return None

    def keep(self, key: str, archive: Path, record: EnvironmentRecord) -> str:
        """Put a built archive on the store and return its URI.

        If several builds have the same key, the first one counts.
        """
        uri = uris.join(self.directory(key), record.archive)
        permission, readable = (_SHARED_ARCHIVE, _SHARED_FILE) if self.shared else (_ARCHIVE, PRIVATE_FILE)
        if self.shared:
            self.storage.make_directories(self.directory(key), permission=_SHARED_DIRECTORY)
        upload(self.storage, archive, uri, overwrite=True, permission=permission)
        beside = uris.join(self.directory(key), contract.ENVIRONMENT_FILE)
        try:
            self.storage.write(beside, dump_json(record), permission=readable)
        except StorageExists:
            if (found := self.find(key)) is not None:
                if found != uri:
                    self.storage.remove(uri)  # unused, because no job knows it without its record
                return found
            write_atomically(self.storage, beside, dump_json(record), permission=readable)
        if not self.shared:
            self._touch(self.directory(key))
        return uri

    def note_use(self, archive: str) -> None:
        """Record that a job uses an archive now, if it is one of these. `airflow tony gc` reads this time.

        Do nothing for a shared cache, because only its administrators may write there.
        """
        if self.shared:
            return
        ours, theirs = uris.parse(self.layout.environments_dir).path, uris.parse(archive).path
        if theirs.startswith(f"{ours}/"):
            self._touch(uris.parent(archive))

    def _touch(self, directory: str) -> None:
        write_atomically(self.storage, uris.join(directory, USED_FILE), str(epoch_ms()).encode())


def is_built(archive: str) -> bool:
    """Return whether `airflow tony env build` made an archive, according to its name."""
    return uris.name(archive).startswith(ARCHIVE_PREFIX)


def hash_digits(sha256: str) -> str:
    """Return the part of its content's hash that an archive's name contains.

    A job names the archive, so a program that can write on the storage cannot replace archive and record together.
    """
    return sha256[:_DIGITS]


def read_environment_record(storage: Storage, uri: str) -> EnvironmentRecord:
    """Return the record. Raises RecordMissing, StorageError."""
    try:
        return load_json(read_whole(storage, uri, RECORD_LIMIT), EnvironmentRecord)
    except StorageNotFound as error:
        raise RecordMissing(f"there is no {uri}, which says what it holds; build it again") from error
    except (CodecError, StorageTooLarge) as error:
        raise RecordMissing(f"{uri} is no record of an environment ({error}); build it again") from error


def environment_record(storage: Storage, archive: FileStatus, *, read: bool = True) -> EnvironmentRecord:
    """Return the record next to an archive, after a check that the archive fits the record.

    With ``read``, check the content; otherwise check only name and size. Raises RecordMissing, StorageError.
    """
    record = read_environment_record(storage, uris.join(uris.parent(archive.path), contract.ENVIRONMENT_FILE))
    is_it = archive.size == record.size and archive.name == record.archive
    is_it = is_it and archive.name.endswith(f"-{hash_digits(record.sha256)}.tar.gz")
    if is_it and read:
        is_it = sha256_of_stored(storage, archive) == record.sha256
    if not is_it:
        raise RecordMissing(f"{archive.path} is not what was built: something has changed it; build it again")
    return record


def note_uses(built: BuiltEnvironments, archives: list[str]) -> None:
    """Record that a job uses these archives. Write errors are only logged, because another user may own an archive."""
    for archive in archives:
        try:
            built.note_use(archive)
        except StorageError as error:
            log.warning("It could not be noted that %s is used, so `airflow tony gc` may remove it: %s", archive, error)


_OTHERS_WRITE = 0o022
_STICKY = 0o1000  # of a directory: only the owner of an entry may rename it
_LONGEST = 4096  # bytes of a note


@attrs.frozen
class SharedCache:
    """The cache of environments that all users share, from the view of a job's user.

    All methods block, and raise StorageError.

    :param root: URI of the directory.
    :param own: the staging directory, which records the archives that this user has verified.
    """

    storage: Storage
    root: str
    user: str
    own: Layout

    def holds(self, uri: str) -> bool:
        """Return whether a file is in the cache. Compare only paths, because a file system may have several names."""
        return uris.parse(uri).path.startswith(f"{uris.parse(self.root).path}/")

    def problems(self, uri: str) -> Iterator[str]:
        """Describe which users other than an administrator could have changed this file."""
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
        """Return whether this user has verified the content and the archive has not changed since."""
        try:
            return read_text(self.storage, self._note(archive), length=_LONGEST) == _version(archive)
        except StorageNotFound:
            return False

    def note_checked(self, archive: FileStatus) -> None:
        """Record that the content was read and matches its record."""
        write_atomically(self.storage, self._note(archive), _version(archive).encode())

    def _note(self, archive: FileStatus) -> str:
        """Return the note's URI, next to this user's own environments, so that gc removes unused notes with them."""
        return uris.join(self.own.environments_dir, uris.name(uris.parent(archive.path)), "checked")

    def _on_the_way(self, uri: str) -> Iterator[FileStatus]:
        """Yield the status of each path from the store's root down to the file."""
        at = str(attrs.evolve(uris.parse(self.root), path="/"))
        yield self.storage.status(at)
        for part in uris.parse(uri).path.strip("/").split("/"):
            at = uris.join(at, part)
            yield self.storage.status(at)


def _version(archive: FileStatus) -> str:
    return f"{archive.path} {archive.size} {archive.modified_ms}"
