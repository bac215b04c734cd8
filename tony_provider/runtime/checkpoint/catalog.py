"""The committed checkpoints of one chain in the storage.

A checkpoint is committed exactly when its manifest exists, which is written last and in one operation. The bytes of
files lie in objects that several checkpoints may share. So a manifest is the first thing to go when a checkpoint is
removed, and an object goes when no manifest names it any more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Optional, Union

from tony_provider.runtime import contract
from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.artifacts.manifest import InvalidManifest, is_inside
from tony_provider.runtime.checkpoint import checkpoint_model
from tony_provider.runtime.checkpoint.checkpoint_model import Manifest, StoredCheckpoint
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.most_bytes import MANIFEST
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import (
    Storage,
    StorageExists,
    StorageNotFound,
    StorageTooLarge,
    read_whole,
    uris,
)

log = logging.getLogger(__name__)

_LARGEST_NUMBER = 1 << 53  # of counts and times, which messages carry and the next checkpoint adds to
REASON_FILE = "set-aside.json"  # in a checkpoint that was set aside: why, and when


class Catalog:
    """Finds, commits and removes the checkpoints of one chain.

    Methods block, are safe from several threads at once, and raise StorageError. ``read_only`` is for a chain that
    belongs to another job: broken checkpoints are skipped there and stay where they are.
    """

    def __init__(self, storage: Storage, chain_uri: str, *, read_only: bool = False) -> None:
        self.chain_uri = str(uris.parse(chain_uri))
        self.uri = checkpoint_model.checkpoints_directory(chain_uri)
        self.objects_uri = checkpoint_model.objects_directory(chain_uri)
        self._broken_uri = uris.join(chain_uri, contract.BROKEN_DIR)
        self._storage = storage
        self._read_only = read_only
        self._lock = threading.Lock()
        self._stored: dict[str, StoredCheckpoint] = {}  # by URI; a manifest never changes

    def newest(self) -> Optional[StoredCheckpoint]:
        """Return the newest committed checkpoint whose objects are all there, or None if there is none.

        Newer ones that are broken are set aside.
        """
        saves = sorted({save for save, _ in self._directories()}, reverse=True)
        sizes = self._sizes() if saves else {}
        for save in saves:
            for found in reversed(self._load_all(save)):
                try:
                    _verify(found, sizes)
                except DamagedCheckpoint as error:
                    self._give_up(error)
                else:
                    return found
        return None

    def list(self) -> Sequence[StoredCheckpoint]:
        """Return all committed checkpoints, the newest last. Those with an unreadable manifest are set aside."""
        return self._load_all()

    def load(self, uri: str) -> StoredCheckpoint:
        """Return one checkpoint. Raises StorageNotFound if it is not committed, DamagedCheckpoint."""
        uri = str(uris.parse(uri))
        with self._lock:
            known = self._stored.get(uri)
        stored = known or read_stored(self._storage, uri)
        with self._lock:
            self._stored[uri] = stored
        return stored

    def commit(self, uri: str, manifest: Manifest) -> StoredCheckpoint:
        """Commit a checkpoint whose objects have been uploaded. To commit the same one twice is no error.

        Raises DamagedCheckpoint if objects are missing or the manifest is too large to be read again, StorageExists if
        the directory has another manifest.
        """
        uri = str(uris.parse(uri))
        data = dump_json(manifest)
        if len(data) > MANIFEST:
            count = sum(len(each.tree.entries) for each in manifest.trees)
            raise DamagedCheckpoint(
                uri,
                f"it has {count} files, and its manifest {len(data)} bytes, more than {MANIFEST}: have the program "
                "write fewer and larger files",
            )
        stored = StoredCheckpoint(uri, manifest, _checksum(data))
        check_manifest(uri, manifest)
        _verify(stored, self._sizes())
        try:
            self._storage.write(uris.join(uri, checkpoint_model.MANIFEST_FILE), data)
        except StorageExists:
            if read_stored(self._storage, uri) != stored:
                raise
        with self._lock:
            self._stored[uri] = stored
        return stored

    def set_aside(self, checkpoint: Union[StoredCheckpoint, str], reason: str) -> Optional[str]:
        """Move a checkpoint's manifest to the chain's broken ones. Its objects stay.

        Returns its new URI, or None if it did not exist any more.
        """
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
        raise StorageExists(source, "set aside", f"{self._broken_uri} has too many entries of that name")

    def prune(self, keep_last: int, keep_every: Optional[int] = None, *, keep: Collection[str] = ()) -> Sequence[str]:
        """Remove all but the ``keep_last`` newest checkpoints and some older ones. Return the URIs of those removed.

        Checkpoints whose step is a multiple of ``keep_every`` stay, and those in ``keep`` (URIs that are in use).
        """
        stored = self.list()
        kept = {str(uris.parse(uri)) for uri in keep} | {one.uri for one in stored[max(0, len(stored) - keep_last) :]}
        kept |= {one.uri for one in stored if keep_every and one.step is not None and one.step % keep_every == 0}
        removed = [one for one in stored if one.uri not in kept]
        if removed:
            self._remove(one.uri for one in removed)
            gone = {name for one in removed for name in one.manifest.objects}
            self._remove_objects(gone - self._referenced())
        return [one.uri for one in removed]

    def finish(self, after_success: AfterSuccess) -> None:
        """Keep of the checkpoints what the job wants to keep after its success."""
        self.remove_unfinished()
        if after_success is not AfterSuccess.KEEP_ALL:
            self.prune(1 if after_success is AfterSuccess.KEEP_LAST else 0)

    def remove_unfinished(self) -> Sequence[str]:
        """Remove everything that was uploaded and never committed. Return the names or URIs of what was removed.

        Nothing may be uploaded meanwhile: it would be removed, too.
        """
        found = [uri for _, uri in self._directories()]
        unfinished = [uri for uri in found if not self._storage.exists(uris.join(uri, checkpoint_model.MANIFEST_FILE))]
        self._remove(unfinished)
        objects = set(self._sizes())
        unused = objects - self._referenced() if objects else set()
        self._remove_objects(unused)
        return [*unfinished, *sorted(unused)]

    def _referenced(self) -> set[str]:
        """Names of the objects that any checkpoint has, also one that was set aside."""
        named = {name for one in self.list() for name in one.manifest.objects}
        for uri in self._broken():
            try:
                named.update(read_stored(self._storage, uri, any_name=True).manifest.objects)
            except (StorageNotFound, DamagedCheckpoint):
                continue  # its objects are unknown
        return named

    def _broken(self) -> Sequence[str]:
        try:
            return [status.path for status in self._storage.list(self._broken_uri) if status.is_directory]
        except StorageNotFound:
            return []

    def _directories(self) -> Sequence[tuple[int, str]]:
        """Number and URI of everything that has the name of a checkpoint, committed or not, by number."""
        try:
            found = self._storage.list(self.uri)
        except StorageNotFound:
            return []
        saves = ((checkpoint_model.save_of(status.name), status) for status in found if status.is_directory)
        return sorted((save, status.path) for save, status in saves if save is not None)

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

    def _sizes(self) -> Mapping[str, int]:
        """The bytes of all objects by name."""
        try:
            found = self._storage.list(self.objects_uri)
            return {status.name: status.size for status in found if not status.is_directory}
        except StorageNotFound:
            return {}

    def _give_up(self, error: DamagedCheckpoint) -> None:
        if self._read_only:
            log.warning("skipping a checkpoint: %s", error)
            return
        where = self.set_aside(error.uri, error.reason)
        log.warning("%s. It was moved to %s", error, where)

    def _remove(self, checkpoints: Iterable[str]) -> None:
        for uri in checkpoints:
            self._forget(uri)
            self._storage.remove(uris.join(uri, checkpoint_model.MANIFEST_FILE))
            self._storage.remove(uri, recursive=True)

    def _remove_objects(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._storage.remove(uris.join(self.objects_uri, name))

    def _forget(self, uri: str) -> None:
        with self._lock:
            self._stored.pop(uri, None)


def read_stored(storage: Storage, uri: str, *, any_name: bool = False) -> StoredCheckpoint:
    """Read the checkpoint at ``uri``. ``any_name``: it may have been renamed when it was set aside.

    Raises StorageNotFound if it is not committed, other StorageErrors, and DamagedCheckpoint for an invalid manifest.
    """
    try:
        data = read_whole(storage, uris.join(uri, checkpoint_model.MANIFEST_FILE), MANIFEST)
        manifest = load_json(data, Manifest, ignore_unknown=True)  # a newer runtime may have written it
    except (CodecError, StorageTooLarge) as error:
        raise DamagedCheckpoint(uri, f"its manifest cannot be read: {error}") from error
    check_manifest(uri, manifest, any_name=any_name)
    return StoredCheckpoint(uri, manifest, _checksum(data))


def _checksum(data: bytes) -> str:
    summed = Checksum()
    summed.update(data)
    return summed.text


def _verify(stored: StoredCheckpoint, sizes: Mapping[str, int]) -> None:
    """Raise DamagedCheckpoint if an object is missing or has another size."""
    for name, size in stored.manifest.objects.items():
        there = sizes.get(name)
        if there != size:
            why = "is missing" if there is None else f"has {there} bytes instead of {size}"
            raise DamagedCheckpoint(stored.uri, f"its object {name} {why}")


def check_manifest(uri: str, manifest: Manifest, *, any_name: bool = False) -> None:
    """Raise DamagedCheckpoint if a manifest names impossible files or numbers, or nothing at all."""
    if not manifest.trees:
        raise DamagedCheckpoint(uri, "its manifest names no files")
    _check_numbers(uri, manifest)
    if not any_name and manifest.save != checkpoint_model.save_of(uris.name(uri)):
        raise DamagedCheckpoint(uri, f"its manifest is of save {manifest.save}")
    if manifest.entry not in ("", ".") and not is_inside(manifest.entry):
        raise DamagedCheckpoint(uri, f"its manifest names {manifest.entry!r}, which does not lie in a directory")
    if len({each.rank for each in manifest.trees}) < len(manifest.trees):
        raise DamagedCheckpoint(uri, "its manifest names a rank twice")
    for each in manifest.trees:
        try:
            each.tree.check()
        except InvalidManifest as error:
            raise DamagedCheckpoint(uri, f"its manifest is invalid: {error}") from error


def _check_numbers(uri: str, manifest: Manifest) -> None:
    """Other programs of the same user can write any number into a manifest."""
    numbers = {name: getattr(manifest, name) for name in ("save", "step", "saved_ms", "generation", "committed_ms")}
    numbers |= {f"rank {each.rank}": each.rank for each in manifest.trees}
    for name, number in numbers.items():
        if number is not None and not 0 <= number <= _LARGEST_NUMBER:
            raise DamagedCheckpoint(uri, f"its manifest has an impossible number: {name} is beyond 0 to 2**53")
