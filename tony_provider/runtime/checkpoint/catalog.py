"""The committed checkpoints of one checkpoint chain on the store.

A checkpoint is committed exactly when its manifest is there, which is written last and in one act. So a manifest is
also the first thing to go when a checkpoint is removed.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Optional, Union

from tony_provider.runtime import contract
from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.checkpoint import checkpoint_model
from tony_provider.runtime.checkpoint.checkpoint_model import Manifest, StoredCheckpoint
from tony_provider.runtime.checkpoint.content import manifest_file
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.most_bytes import MANIFEST
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import (
    Storage,
    StorageExists,
    StorageNotADirectory,
    StorageNotFound,
    StorageTooLarge,
    read_whole,
    uris,
    walk,
)

log = logging.getLogger(__name__)

_LARGEST_NUMBER = 1 << 53  # that is added to, counted on and sent on as it is; a step or a time in ms has far fewer
REASON_FILE = "set-aside.json"  # in a checkpoint that was set aside: why, and when


class Catalog:
    """The checkpoints of one chain on the store: finds, commits and removes them.

    Calls block, are safe from several threads at once, and raise StorageError. ``read_only`` is for a chain that is
    only read: what is broken there is passed over and stays where it is.
    """

    def __init__(self, storage: Storage, chain_uri: str, *, read_only: bool = False) -> None:
        self.uri = checkpoint_model.checkpoints_directory(chain_uri)
        self._broken_uri = uris.join(chain_uri, contract.BROKEN_DIR)
        self._storage = storage
        self._read_only = read_only
        self._lock = threading.Lock()
        self._stored: dict[str, StoredCheckpoint] = {}  # by URI; a manifest never changes

    def newest(self) -> Optional[StoredCheckpoint]:
        """The committed checkpoint of the last save, with all its files there in their sizes; None when there is none.

        Later ones that are broken are set aside.
        """
        saves = sorted({save for save, _ in self._directories()}, reverse=True)
        for save in saves:
            for found in reversed(self._load_all(save)):
                try:
                    self._verify(found)
                except DamagedCheckpoint as error:
                    self._give_up(error)
                else:
                    return found
        return None

    def list(self) -> Sequence[StoredCheckpoint]:
        """All committed checkpoints, the last save last; those whose manifest cannot be read are set aside."""
        return self._load_all()

    def load(self, uri: str) -> StoredCheckpoint:
        """One committed checkpoint. Raises StorageNotFound when it is not committed, DamagedCheckpoint."""
        uri = str(uris.parse(uri))
        with self._lock:
            known = self._stored.get(uri)
        stored = known or read_stored(self._storage, uri)
        with self._lock:
            self._stored[uri] = stored
        return stored

    def commit(self, uri: str, manifest: Manifest) -> StoredCheckpoint:
        """Commit an uploaded checkpoint: from now on it counts. Doing it twice is no error.

        Raises DamagedCheckpoint when not all of its files are there, or they are more than a manifest can name;
        StorageExists when it was committed as another.
        """
        uri = str(uris.parse(uri))
        data = dump_json(manifest)
        if len(data) > MANIFEST:  # nobody would read it again
            raise DamagedCheckpoint(
                uri,
                f"it has {len(manifest.files)} files, and its manifest {len(data)} bytes, more than {MANIFEST}: have "
                "the program write fewer and larger files",
            )
        stored = StoredCheckpoint(uri, manifest, _checksum(data))
        check_manifest(uri, manifest)
        self._verify(stored)
        try:
            self._storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), data)
        except StorageExists:
            if read_stored(self._storage, uri) != stored:
                raise
        with self._lock:
            self._stored[uri] = stored
        return stored

    def set_aside(self, checkpoint: Union[StoredCheckpoint, str], reason: str) -> Optional[str]:
        """Move a checkpoint to where nobody looks for one. Returns its URI there; None when it was gone already."""
        source = str(uris.parse(checkpoint if isinstance(checkpoint, str) else checkpoint.uri))
        self._storage.make_directories(self._broken_uri)
        name = uris.name(source)
        for number in range(1, 1000):
            target = uris.join(self._broken_uri, name if number == 1 else f"{name}.{number}")
            try:
                self._storage.rename(source, target)
            except StorageExists:
                continue
            except StorageNotFound:
                return None
            self._forget(source)
            note = {"reason": reason, "set_aside_ms": epoch_ms()}
            self._storage.write(uris.join(target, REASON_FILE), json.dumps(note).encode(), overwrite=True)
            return target
        raise StorageExists(source, "set aside", f"{self._broken_uri} is full of that name")

    def prune(self, keep_last: int, keep_every: Optional[int] = None, *, keep: Collection[str] = ()) -> Sequence[str]:
        """Remove all but the ``keep_last`` newest, and some older ones. Returns the URIs of those removed.

        Kept are also those whose step is known and a multiple of ``keep_every``, and ``keep`` (URIs that are in use).
        """
        stored = self.list()
        kept = {str(uris.parse(uri)) for uri in keep} | {one.uri for one in stored[max(0, len(stored) - keep_last) :]}
        kept |= {one.uri for one in stored if keep_every and one.step is not None and one.step % keep_every == 0}
        return self._remove([one.uri for one in stored if one.uri not in kept])

    def finish(self, after_success: AfterSuccess) -> None:
        """Leave of the checkpoints what is to stay once the job has succeeded."""
        self.remove_unfinished()
        if after_success is not AfterSuccess.KEEP_ALL:
            self.prune(1 if after_success is AfterSuccess.KEEP_LAST else 0)

    def remove_unfinished(self) -> Sequence[str]:
        """Remove what was uploaded and never committed. Returns the URIs of those removed."""
        found = (uri for _, uri in self._directories())
        return self._remove(
            [uri for uri in found if not self._storage.exists(uris.join(uri, checkpoint_model.MANIFEST_FILE))]
        )

    def _directories(self) -> Sequence[tuple[int, str]]:
        """Save and URI of all that look like checkpoints, committed or not, by save."""
        try:
            found = self._storage.list(self.uri)
        except StorageNotFound:
            return []
        places = ((checkpoint_model.place_of(status.name), status) for status in found if status.is_directory)
        return sorted((place.save, status.path) for place, status in places if place is not None)

    def _load_all(self, only_save: Optional[int] = None) -> Sequence[StoredCheckpoint]:
        found = []
        for save, uri in self._directories():
            try:
                if only_save in (None, save):
                    found.append(self.load(uri))
            except StorageNotFound:
                continue  # not committed, or just removed
            except DamagedCheckpoint as error:
                self._give_up(error)
        return sorted(found, key=lambda stored: (stored.save, stored.manifest.committed_ms))

    def _verify(self, stored: StoredCheckpoint) -> None:
        for rank in sorted({file.rank for file in stored.manifest.files}):
            sizes = self._sizes(checkpoint_model.rank_directory(stored.uri, rank))
            for file in stored.manifest.files:
                there = sizes.get(checkpoint_model.stored_path(file.path))
                if file.rank == rank and there != file.size:
                    why = "is missing" if there is None else f"has {there} bytes instead of {file.size}"
                    raise DamagedCheckpoint(stored.uri, f"rank-{rank}/{file.path} {why}")

    def _sizes(self, directory: str) -> Mapping[str, int]:
        prefix = len(str(uris.parse(directory))) + 1
        try:
            found = [*walk(self._storage, directory)]
        except (StorageNotFound, StorageNotADirectory):
            return {}
        return {status.path[prefix:]: status.size for status in found if not status.is_directory}

    def _give_up(self, error: DamagedCheckpoint) -> None:
        if self._read_only:
            log.warning("%s; it is passed over", error)
            return
        where = self.set_aside(error.uri, error.reason)
        log.warning("%s; it was set aside: %s", error, where)

    def _remove(self, found: Sequence[str]) -> Sequence[str]:
        for uri in found:
            self._storage.remove(uris.join(uri, checkpoint_model.MANIFEST_FILE))
            self._storage.remove(uri, recursive=True)
            self._forget(uri)
        return found

    def _forget(self, uri: str) -> None:
        with self._lock:
            self._stored.pop(uri, None)


def read_stored(storage: Storage, uri: str) -> StoredCheckpoint:
    """The checkpoint at ``uri``.

    Raises StorageNotFound when it is not committed, other StorageErrors, and DamagedCheckpoint when its manifest makes
    no sense.
    """
    try:
        data = read_whole(storage, uris.join(uri, checkpoint_model.MANIFEST_FILE), MANIFEST)
        manifest = load_json(data, Manifest, ignore_unknown=True)  # a newer runtime may have written it
    except (CodecError, StorageTooLarge) as error:
        raise DamagedCheckpoint(uri, f"its manifest cannot be read: {error}") from error
    check_manifest(uri, manifest)
    return StoredCheckpoint(uri, manifest, _checksum(data))


def _checksum(data: bytes) -> str:
    summed = Checksum()
    summed.update(data)
    return summed.text


def check_manifest(uri: str, manifest: Manifest) -> None:
    """Check what a manifest names. Raises DamagedCheckpoint for impossible files or numbers, and for no files."""
    if not manifest.files:
        raise DamagedCheckpoint(uri, "its manifest names no files")
    _check_numbers(uri, manifest)
    if checkpoint_model.CheckpointName(manifest.save, manifest.step) != checkpoint_model.place_of(uris.name(uri)):
        raise DamagedCheckpoint(uri, f"its manifest is of save {manifest.save}, step {manifest.step}")
    paths = [file.path for file in manifest.files] + [manifest.entry] * (manifest.entry != ".")
    for path in paths:
        if not manifest_file.is_inside(path):
            raise DamagedCheckpoint(uri, f"its manifest names {path!r}, which does not lie in a directory")
    places = {(file.rank, file.path) for file in manifest.files}
    if len(places) < len(manifest.files):
        raise DamagedCheckpoint(uri, "its manifest names a file twice")


def _check_numbers(uri: str, manifest: Manifest) -> None:
    """Whoever may write in the chain can write any; a time or a count that nothing can hold would end a master."""
    numbers = {name: getattr(manifest, name) for name in ("save", "step", "saved_ms", "generation", "committed_ms")}
    for file in manifest.files:
        if not (0 <= file.size <= _LARGEST_NUMBER and 0 <= file.rank <= _LARGEST_NUMBER):
            numbers |= {"size": file.size, "rank": file.rank}
    for name, number in numbers.items():
        if number is not None and not 0 <= number <= _LARGEST_NUMBER:
            raise DamagedCheckpoint(uri, f"its manifest says an impossible number: {name} is beyond 0 to 2**53")
