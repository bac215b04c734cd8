"""Built environments on the store: ``cache/environments/<key>/`` below the staging directory.

In it are the archive, its record, which makes it one and is written last, and a file that says when a job has last used
it. The key is the hash of what it was built of: its requirements, the Python, the machine.
"""

from __future__ import annotations

import logging
from pathlib import Path

import attrs

from tony_provider.cluster.known_contents import sha256_of_stored
from tony_provider.cluster.layout import Layout
from tony_provider.runtime import contract
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.environment_record import EnvironmentRecord
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import PRIVATE_FILE, FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotFound, StorageTooLarge
from tony_provider.runtime.storage.helpers import read_whole, upload, write_atomically

log = logging.getLogger(__name__)

NAME = "tony-env-"  # the beginning of an archive's name, by which submissions know that there is a record
_DIGITS = 32  # of the hash of an archive's content, in its name
USED_FILE = "used"  # changed when a job is submitted
_ARCHIVE = 0o500  # as other files in the cache
_SHARED_ARCHIVE, _SHARED_FILE, _SHARED_DIRECTORY = 0o555, 0o644, 0o755


class RecordMissing(Exception):  # noqa: N818 - named for what is wrong
    """What should be a built environment has no record that can be read."""


@attrs.frozen
class BuiltEnvironments:
    """Those of one staging directory. All methods block, and raise StorageError."""

    storage: Storage
    layout: Layout
    shared: bool = False  # with all users, who may read it

    def directory(self, key: str) -> str:
        return uris.join(self.layout.environments_dir, key)

    def find(self, key: str) -> str | None:
        """The URI of the archive of this content, when it was built and is there still."""
        directory = self.directory(key)
        try:
            record = read_record(self.storage, uris.join(directory, contract.ENVIRONMENT_FILE))
            uri = uris.join(directory, record.archive)
            return uri if self.storage.status(uri).size == record.size else None
        except (StorageNotFound, RecordMissing):
            return None

    def keep(self, key: str, archive: Path, record: EnvironmentRecord) -> str:
        """Put a built archive on the store; returns its URI. Of several that build the same the first one counts."""
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
                    self.storage.remove(uri)  # no job can know of it without its record
                return found
            write_atomically(self.storage, beside, dump_json(record), permission=readable)
        if not self.shared:
            self._touch(self.directory(key))
        return uri

    def note_use(self, archive: str) -> None:
        """Note that a job uses an archive now, if it is one of these: `airflow tony gc` goes by it.

        Of those that users share nobody else than their administrator could.
        """
        if self.shared:
            return
        ours, theirs = uris.parse(self.layout.environments_dir).path, uris.parse(archive).path
        if theirs.startswith(f"{ours}/"):
            self._touch(uris.parent(archive))

    def _touch(self, directory: str) -> None:
        write_atomically(self.storage, uris.join(directory, USED_FILE), str(epoch_ms()).encode())


def is_built(archive: str) -> bool:
    """Whether an archive was made by `airflow tony env build`, by its name."""
    return uris.name(archive).startswith(NAME)


def digits(sha256: str) -> str:
    """Return what an archive's name holds of its content's hash.

    A job names the archive, so a program that can write on the storage cannot replace archive and record together.
    """
    return sha256[:_DIGITS]


def read_record(storage: Storage, uri: str) -> EnvironmentRecord:
    """Raises RecordMissing, StorageError."""
    try:
        return load_json(read_whole(storage, uri, RECORD), EnvironmentRecord)
    except StorageNotFound as error:
        raise RecordMissing(f"there is no {uri}, which says what it holds; build it again") from error
    except (CodecError, StorageTooLarge) as error:
        raise RecordMissing(f"{uri} is no record of an environment ({error}); build it again") from error


def record_of(storage: Storage, archive: FileStatus, *, read: bool = True) -> EnvironmentRecord:
    """Return the record next to an archive, after a check that the archive fits the record.

    With ``read``, check the content; otherwise check only name and size. Raises RecordMissing, StorageError.
    """
    record = read_record(storage, uris.join(uris.parent(archive.path), contract.ENVIRONMENT_FILE))
    is_it = archive.size == record.size and archive.name == record.archive
    is_it = is_it and archive.name.endswith(f"-{digits(record.sha256)}.tar.gz")
    if is_it and read:
        is_it = sha256_of_stored(storage, archive) == record.sha256
    if not is_it:
        raise RecordMissing(f"{archive.path} is not what was built: something has changed it; build it again")
    return record


def note_uses(built: BuiltEnvironments, archives: list[str]) -> None:
    """Note that a job uses these. One that this user may not write beside is somebody else's to prune."""
    for archive in archives:
        try:
            built.note_use(archive)
        except StorageError as error:
            log.warning("It could not be noted that %s is used, so `airflow tony gc` may remove it: %s", archive, error)
