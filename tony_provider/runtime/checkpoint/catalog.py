"""The catalog of a checkpoint chain, which commits, chooses, restores, pins and removes checkpoints.

The owner of a chain is the job that writes checkpoints to it. The owner may remove old checkpoints at any time. A
reader, such as another training or a notebook, pins a checkpoint before copying it, so that the owner keeps it. A pin
is a file in the chain. The reader first creates the pin, and then checks that the manifest still exists.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional, Union

import attrs

from tony_provider.runtime.artifacts.manifest import LARGEST_NUMBER, Checksum, InvalidManifest, is_inside
from tony_provider.runtime.artifacts.tree_restore import DamagedObject, RestoredTree, restore_tree
from tony_provider.runtime.checkpoint import stored_checkpoint
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import (
    CheckpointTooLarge,
    DamagedCheckpoint,
    FailedResume,
    FailedResumes,
    Manifest,
    StoredCheckpoint,
    chain_of,
    is_checkpoint,
    objects_directory,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import MANIFEST_LIMIT, RECORD_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.jobspec.model import AfterSuccess
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageExists,
    StorageNotFound,
    StorageTooLarge,
    StorageUnreachable,
    read_whole,
    uris,
    walk,
    write_atomically,
)
from tony_provider.runtime.storage.base import download, list_existing

log = logging.getLogger(__name__)

LONGEST_PIN = 6 * 3600.0  # seconds after which a pin expires, because its reader may have died


class Pins:
    """The pins of one chain. Methods block and raise StorageError."""

    def __init__(self, storage: Storage, chain_uri: str) -> None:
        self._storage = storage
        self._uri = uris.join(chain_uri, contract.PINS_DIR)

    def add(self, checkpoint: str, reader: str) -> None:
        """Pin a checkpoint by its name, or extend an existing pin. ``reader``: a unique name without dots.

        If the pin cannot be written, for example without permission, only log a warning: the owner may then remove the
        checkpoint while the reader copies it. Raises StorageUnreachable.
        """
        try:
            self._storage.write(self._file(checkpoint, reader), b"", overwrite=True)
        except StorageUnreachable:
            raise
        except StorageError as error:
            log.warning("cannot pin %s, so its training may remove it during the copy: %s", checkpoint, error)

    def remove(self, checkpoint: str, reader: str) -> None:
        """Remove a pin. If the removal fails, log a warning: the pin expires after LONGEST_PIN seconds."""
        try:
            self._storage.remove(self._file(checkpoint, reader))
        except StorageError as error:
            log.warning(
                "could not remove the pin of %s on %s; the pin expires by itself: %s", reader, checkpoint, error
            )

    def names(self) -> frozenset[str]:
        """Return the names of all pinned checkpoints, and remove expired pins."""
        listed = list_existing(self._storage, self._uri)
        found = [status for status in listed if "." in status.name]  # the name of a pin contains a dot
        oldest_ms = epoch_ms() - LONGEST_PIN * 1000
        for status in found:
            if status.modified_ms < oldest_ms:
                self.remove(*status.name.split(".", 1))
        return frozenset(status.name.partition(".")[0] for status in found if status.modified_ms >= oldest_ms)

    def _file(self, checkpoint: str, reader: str) -> str:
        return uris.join(self._uri, f"{checkpoint}.{reader}")


_NUMBERS = ("save", "step", "reported_step", "saved_ms", "generation", "committed_ms")  # numeric manifest fields
_REMOVED_MARK = "removed"  # file in a checkpoint that its owner is about to remove
REASON_FILE = "set-aside.json"  # file in a checkpoint that was set aside, with the reason and the time


@attrs.frozen
class ChosenCheckpoint:
    """The checkpoint that a training resumes from."""

    checkpoint: StoredCheckpoint
    suspect: Optional[StoredCheckpoint] = None  # the newest checkpoint, if it was skipped because it is suspect
    suspicion: str = ""  # reason why ``suspect`` was skipped

    @property
    def not_from(self) -> str:
        """Describe the checkpoint that was skipped as suspect. Empty if none was skipped."""
        if self.suspect is None:
            return ""
        return f"not from {self.suspect.point.label}, which is marked as suspect: {self.suspicion}"


class Catalog:
    """Finds, commits and removes the checkpoints of one chain.

    Methods block, are thread-safe, and raise StorageError. ``read_only`` is for a chain that belongs to another job:
    the catalog writes nothing but pins to it. It records broken checkpoints and failed resumes in memory.
    """

    def __init__(self, storage: Storage, chain_uri: str, *, read_only: bool = False, only: str = "") -> None:
        """``only``: URI of the only checkpoint to use. If empty, all checkpoints of the chain are used."""
        self.chain_uri = str(uris.parse(chain_uri))
        self.uri = stored_checkpoint.checkpoints_directory(chain_uri)
        self.objects_uri = stored_checkpoint.objects_directory(chain_uri)
        self._broken_uri = uris.join(chain_uri, contract.BROKEN_DIR)
        self._failures_uri = uris.join(chain_uri, contract.FAILED_RESUMES_FILE)
        self._pins = Pins(storage, chain_uri)
        self._storage = storage
        self._read_only = read_only
        self._only = uris.name(only) if only else ""
        self._lock = threading.Lock()
        self._stored: dict[str, StoredCheckpoint] = {}  # cache by URI, never outdated because manifests do not change
        self._broken_here: set[str] = set()  # URIs of broken checkpoints that ``read_only`` keeps in place
        self._failed_resumes: Optional[FailedResumes] = None  # cached, because only the chain's owner changes them

    def newest(self) -> Optional[StoredCheckpoint]:
        """Return the newest committed checkpoint whose objects all exist, or None.

        Newer checkpoints that are broken are set aside.
        """
        return next(self._intact(), None)

    def choose(self, trusted: str = "") -> Optional[ChosenCheckpoint]:
        """Return the checkpoint to resume from, or None if there is none.

        This is the newest intact checkpoint that is not suspect, or the newest intact checkpoint if all are suspect.
        The checkpoint with the URI ``trusted`` never counts as suspect.
        """
        suspect: Optional[StoredCheckpoint] = None
        for found in self._intact():
            if found.uri == trusted or not self.failed_resumes().suspicion(found.uri):
                suspicion = self.failed_resumes().suspicion(suspect.uri) if suspect else ""
                return ChosenCheckpoint(found, suspect, suspicion)
            suspect = suspect or found
        return ChosenCheckpoint(suspect) if suspect else None

    def next_save(self) -> int:
        """Return the number of the next checkpoint."""
        return 1 + max((save for save, _ in self._directories()), default=0)

    def failed_resumes(self) -> FailedResumes:
        """Return the failures of processes that resumed from checkpoints of this chain."""
        with self._lock:
            known = self._failed_resumes
        if known is None:
            known = self._read_failed_resumes()
            with self._lock:
                self._failed_resumes = known
        return known

    def note_failed_resume(self, uri: str, failure: FailedResume) -> None:
        """Record the failure of a process that had resumed from the checkpoint at ``uri``."""
        self._change_failed_resumes(self.failed_resumes().added(uri, failure), uri)

    def note_sound_resume(self, uri: str) -> None:
        """Forget the failures of a checkpoint, because a process that had resumed from it reported a step."""
        if uris.name(uri) in self.failed_resumes().by_checkpoint:
            self._change_failed_resumes(self.failed_resumes().without(uri), uri)

    def _change_failed_resumes(self, failures: FailedResumes, uri: str) -> None:
        if not self._read_only:
            there = {uris.name(found) for _, found in self._directories()} | {uris.name(uri)}
            failures = FailedResumes({name: each for name, each in failures.by_checkpoint.items() if name in there})
            write_atomically(self._storage, self._failures_uri, dump_json(failures))
        with self._lock:
            self._failed_resumes = failures

    def list(self) -> Sequence[StoredCheckpoint]:
        """Return all committed checkpoints, the newest last. Checkpoints with an unreadable manifest are set aside."""
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
        """Commit a checkpoint whose objects have been uploaded. A repeated commit has no effect.

        Raises DamagedCheckpoint if objects are missing, CheckpointTooLarge if the manifest is too large for readers,
        and StorageExists if the directory already contains a different manifest.
        """
        uri = str(uris.parse(uri))
        data = dump_json(manifest)
        if len(data) > MANIFEST_LIMIT:
            count = sum(len(each.tree.entries) for each in manifest.trees)
            raise CheckpointTooLarge(uri, f"{count} files and directories, {len(data)} of {MANIFEST_LIMIT} bytes")
        stored = StoredCheckpoint(uri, manifest, _checksum(data))
        check_manifest(uri, manifest)
        _verify(stored, self._sizes())
        try:
            self._storage.write(uris.join(uri, stored_checkpoint.MANIFEST_FILE), data)
        except StorageExists:
            if read_stored(self._storage, uri) != stored:
                raise
        with self._lock:
            self._stored[uri] = stored
        return stored

    def pin(self, uri: str, reader: str) -> bool:
        """Pin a checkpoint until ``unpin`` is called. Return False if the checkpoint is missing or about to be removed.

        The pin expires after LONGEST_PIN seconds. ``reader``: a unique name without dots. If the pin cannot be written,
        ``Pins.add`` logs a warning, and this method continues without a pin.
        """
        self._pins.add(uris.name(uri), reader)
        # A missing mark does not prove that the checkpoint exists: the owner removes the mark with the checkpoint.
        is_there = not self._storage.exists(uris.join(uri, _REMOVED_MARK))
        if is_there and self._storage.exists(uris.join(uri, stored_checkpoint.MANIFEST_FILE)):
            return True
        self._forget(uri)
        return False

    def unpin(self, uri: str, reader: str) -> None:
        """Remove a pin that ``pin`` created."""
        self._pins.remove(uris.name(uri), reader)

    def set_aside(self, checkpoint: Union[StoredCheckpoint, str], reason: str) -> Optional[str]:
        """Move a checkpoint's directory to the chain's broken checkpoints. Its objects stay.

        Returns the new URI, or None if the checkpoint no longer existed or if the chain is ``read_only``.
        """
        source = str(uris.parse(checkpoint if isinstance(checkpoint, str) else checkpoint.uri))
        if self._read_only:
            self._broken_here.add(source)
            return None
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
        """Remove old checkpoints and return their URIs. The ``keep_last`` newest checkpoints stay.

        An older checkpoint also stays in three cases:

        - Its step is a multiple of ``keep_every``.
        - Its URI is in ``keep``, the URIs in use.
        - A reader has pinned it.

        Suspect checkpoints do not count towards ``keep_last``, unless all checkpoints are suspect. A suspect checkpoint
        stays if it is newer than the oldest of the ``keep_last`` checkpoints.
        """
        stored = self.list()
        trusted = [one for one in stored if not self.failed_resumes().suspicion(one.uri)] or stored
        newest = trusted[max(0, len(trusted) - keep_last) :]
        kept = {str(uris.parse(uri)) for uri in keep} | {one.uri for one in newest}
        kept |= {one.uri for one in stored if newest and one not in trusted and one.save > newest[0].save}
        kept |= {one.uri for one in stored if keep_every and one.step is not None and one.step % keep_every == 0}
        if removed := self._mark_for_removal([one for one in stored if one.uri not in kept]):
            self._remove(one.uri for one in removed)
            gone = {name for one in removed for name in one.manifest.objects}
            self._remove_objects(gone - self._referenced())
        return [one.uri for one in removed]

    def _mark_for_removal(self, doomed: Sequence[StoredCheckpoint]) -> Sequence[StoredCheckpoint]:
        """Mark checkpoints that are about to be removed, except pinned checkpoints. Return the marked checkpoints.

        A reader first pins a checkpoint and then checks for the mark. This method first writes the mark and then checks
        for pins. So in a race, the reader finds the mark, or this method finds the pin.
        """
        pinned = self._pins.names() if doomed else frozenset()
        marked = [one for one in doomed if uris.name(one.uri) not in pinned]
        for one in marked:
            self._storage.write(uris.join(one.uri, _REMOVED_MARK), b"", overwrite=True)
        pinned = self._pins.names() if marked else frozenset()
        for one in marked:
            if uris.name(one.uri) in pinned:
                self._storage.remove(uris.join(one.uri, _REMOVED_MARK))
        return [one for one in marked if uris.name(one.uri) not in pinned]

    def finish(self, after_success: AfterSuccess) -> None:
        """Remove the checkpoints that ``checkpoint.after_success`` does not keep."""
        self.remove_unfinished()
        if after_success is not AfterSuccess.KEEP_ALL:
            self.prune(1 if after_success is AfterSuccess.KEEP_LAST else 0)

    def remove_unfinished(self) -> Sequence[str]:
        """Remove uncommitted checkpoints and unreferenced objects. Return the checkpoints' URIs and the objects' names.

        The caller ensures that no upload is running, because this method would remove the objects of a running upload.
        """
        found = [uri for _, uri in self._directories()]
        unfinished = [uri for uri in found if not self._storage.exists(uris.join(uri, stored_checkpoint.MANIFEST_FILE))]
        self._remove(unfinished)
        objects = set(self._sizes())
        unused = objects - self._referenced() if objects else set()
        self._remove_objects(unused)
        return [*unfinished, *sorted(unused)]

    def _intact(self) -> Iterator[StoredCheckpoint]:
        """Yield the checkpoints whose objects all exist, the newest first. Set broken checkpoints aside."""
        saves = sorted({save for save, _ in self._directories()}, reverse=True)
        sizes = self._sizes() if saves else {}
        for save in saves:
            for found in reversed(self._load_all(save)):
                try:
                    _verify(found, sizes)
                except DamagedCheckpoint as error:
                    self._set_aside_damaged(error)
                else:
                    yield found

    def _read_failed_resumes(self) -> FailedResumes:
        try:
            data = read_whole(self._storage, self._failures_uri, RECORD_LIMIT)
            return load_json(data, FailedResumes, ignore_unknown=True)
        except StorageNotFound:
            return FailedResumes()
        except (CodecError, StorageTooLarge) as error:
            log.warning("%s cannot be read, so no checkpoint counts as suspect: %s", self._failures_uri, error)
            return FailedResumes()

    def _referenced(self) -> set[str]:
        """Return the names of the objects of all checkpoints, including checkpoints that were set aside."""
        named = {name for one in self.list() for name in one.manifest.objects}
        for uri in self._broken():
            try:
                named.update(read_stored(self._storage, uri, any_name=True).manifest.objects)
            except (StorageNotFound, DamagedCheckpoint):
                continue  # the manifest is unreadable, so the objects are unknown
        return named

    def _broken(self) -> Sequence[str]:
        return [status.path for status in list_existing(self._storage, self._broken_uri) if status.is_directory]

    def _directories(self) -> Sequence[tuple[int, str]]:
        """Return the number and URI of each checkpoint directory, committed or not, sorted by number."""
        found = list_existing(self._storage, self.uri)
        named = (status for status in found if status.is_directory and self._only in ("", status.name))
        saves = ((stored_checkpoint.save_of(status.name), status) for status in named)
        return sorted((save, status.path) for save, status in saves if save is not None)

    def _load_all(self, only_save: Optional[int] = None) -> Sequence[StoredCheckpoint]:
        found = []
        for save, uri in self._directories():
            try:
                if only_save in (None, save) and uri not in self._broken_here:
                    found.append(self.load(uri))
            except StorageNotFound:
                continue  # not committed, or just removed
            except DamagedCheckpoint as error:
                self._set_aside_damaged(error)
        return sorted(found, key=lambda stored: (stored.save, stored.manifest.committed_ms))

    def _sizes(self) -> Mapping[str, int]:
        """Return the sizes of all objects in bytes, by name."""
        found = list_existing(self._storage, self.objects_uri)
        return {status.name: status.size for status in found if not status.is_directory}

    def _set_aside_damaged(self, error: DamagedCheckpoint) -> None:
        where = self.set_aside(error.uri, error.reason)
        log.warning("%s. %s", error, f"The checkpoint was moved to {where}" if where else "The checkpoint is ignored")

    def _remove(self, checkpoints: Iterable[str]) -> None:
        for uri in checkpoints:
            self._forget(uri)
            self._storage.remove(uris.join(uri, stored_checkpoint.MANIFEST_FILE))
            self._storage.remove(uri, recursive=True)

    def _remove_objects(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._storage.remove(uris.join(self.objects_uri, name))

    def _forget(self, uri: str) -> None:
        with self._lock:
            self._stored.pop(uri, None)


def foreign_catalog(storage: Storage, uri: str) -> Catalog:
    """Return a read-only catalog of the chain at ``uri``, or of the single checkpoint if ``uri`` names a checkpoint."""
    only = uri if stored_checkpoint.is_checkpoint(uri) else ""
    return Catalog(storage, stored_checkpoint.chain_named(uri), read_only=True, only=only)


def read_stored(storage: Storage, uri: str, *, any_name: bool = False) -> StoredCheckpoint:
    """Read the checkpoint at ``uri``. ``any_name``: accept the changed name of a directory that was set aside.

    Raises StorageNotFound if the checkpoint is not committed, other StorageErrors, and DamagedCheckpoint if its
    manifest is invalid.
    """
    try:
        data = read_whole(storage, uris.join(uri, stored_checkpoint.MANIFEST_FILE), MANIFEST_LIMIT)
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
    """Raise DamagedCheckpoint if a manifest has no files, or invalid paths or numbers."""
    if not manifest.trees:
        raise DamagedCheckpoint(uri, "its manifest names no files")
    _check_numbers(uri, manifest)
    if not any_name and manifest.save != stored_checkpoint.save_of(uris.name(uri)):
        raise DamagedCheckpoint(uri, f"its manifest has save number {manifest.save}, unlike its directory")
    if manifest.entry not in ("", ".") and not is_inside(manifest.entry):
        raise DamagedCheckpoint(uri, f"its manifest names {manifest.entry!r}, which is not a path below the directory")
    if len({each.rank for each in manifest.trees}) < len(manifest.trees):
        raise DamagedCheckpoint(uri, "its manifest lists a rank twice")
    for each in manifest.trees:
        try:
            each.tree.check()
        except InvalidManifest as error:
            raise DamagedCheckpoint(uri, f"its manifest is invalid: {error}") from error


def _check_numbers(uri: str, manifest: Manifest) -> None:
    """Raise DamagedCheckpoint for numbers out of range: other programs of the user may have written the manifest."""
    numbers = [(name, getattr(manifest, name)) for name in _NUMBERS]
    for name, number in [*numbers, *(("rank", each.rank) for each in manifest.trees)]:
        if number is not None and not 0 <= number <= LARGEST_NUMBER:
            raise DamagedCheckpoint(uri, f"its manifest has {name} {number}, which is not between 0 and 2**53")


_TRIES = 3  # attempts to copy a checkpoint
_ADVICE = (
    f"{_TRIES} attempts to copy a checkpoint have failed. If its training still removes old checkpoints, wait until "
    "it has ended, or raise its checkpoint.keep"
)


def restore_checkpoint(
    storage: Storage,
    resume: ResumePoint,
    directory: Path,
    rank: Optional[int],
    *,
    cancelled: threading.Event,
    aside: Path,
) -> tuple[StoredCheckpoint, RestoredTree]:
    """Replace the content of ``directory`` by a committed checkpoint, with the files that the task of ``rank`` needs.

    ``Manifest.tree_of`` lists these files. Files that ``directory`` already has are not copied. ``aside``: a path next
    to ``directory`` that receives its former content. On any exception, ``directory`` stays as it was.

    Blocks. Return the checkpoint and the restored tree. Raises DamagedCheckpoint (also if the checkpoint was removed or
    its manifest was replaced), Cancelled, StorageError, OSError.
    """
    try:
        stored = read_stored(storage, resume.uri)
    except StorageNotFound as error:
        raise DamagedCheckpoint(resume.uri, "its manifest is missing, or the checkpoint was removed") from error
    if resume.checksum and stored.checksum != resume.checksum:
        raise DamagedCheckpoint(resume.uri, "its manifest is not the one that was committed")
    objects = objects_directory(chain_of(resume.uri))
    try:
        restored = restore_tree(
            storage,
            objects,
            stored.manifest.tree_of(rank),
            directory,
            aside=aside,
            cancelled=cancelled,
        )
    except (DamagedObject, InvalidManifest) as error:
        raise DamagedCheckpoint(resume.uri, str(error)) from error
    return stored, restored


def copy_checkpoint(storage: Storage, uri: str, directory: Path, rank: int, cancelled: threading.Event) -> ResumePoint:
    """Restore a checkpoint of another training into a new directory. Return the checkpoint's identifier.

    ``uri`` names a checkpoint, or a chain. For a chain, the newest checkpoint is restored. If the chain's owner removes
    this checkpoint during the copy, the copy is retried with the newest remaining checkpoint.

    Blocks. Raises DamagedCheckpoint, Cancelled, StorageError, OSError.
    """
    reader = f"copy-{secrets.token_hex(4)}"
    for tries_left in reversed(range(_TRIES)):
        catalog = foreign_catalog(storage, uri)
        chosen = catalog.choose()
        if chosen is None and tries_left:
            continue  # the owner may have removed the checkpoint and committed a newer one since the listing
        if chosen is None:
            raise StorageNotFound(uri, "read", "it contains no complete checkpoint")
        point = chosen.checkpoint.point
        catalog.pin(point.uri, reader)
        try:
            aside = directory.with_name(f".{directory.name}-{secrets.token_hex(4)}")  # not used for a new directory
            restore_checkpoint(storage, point, directory, rank, cancelled=cancelled, aside=aside)
        except DamagedCheckpoint as error:
            log.warning("%s", error)
            if not tries_left:
                raise DamagedCheckpoint(error.uri, f"{error.reason}. {_ADVICE}") from error
        else:
            return point
        finally:
            catalog.unpin(point.uri, reader)
    raise AssertionError("the last attempt returns or raises")


_AT_ONCE = 4  # concurrent transfers of files


def fetch_warm_start(storage: Storage, uri: str, directory: Path, cancelled: threading.Event) -> None:
    """Copy the directory at ``uri`` to ``directory``, completely or not at all. A second call has no effect.

    The URI of a checkpoint chain means its newest checkpoint. Blocks. Raises StorageError, OSError, Cancelled, and
    DamagedCheckpoint for a checkpoint chain.
    """
    if directory.exists():
        return
    if _is_chain(storage, uri):
        copy_checkpoint(storage, uri, directory, 0, cancelled)
        return
    partial = directory.with_name(directory.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    _copy(storage, uri, partial, cancelled)
    partial.rename(directory)


def _is_chain(storage: Storage, uri: str) -> bool:
    """Return whether ``uri`` names a checkpoint chain, or one of its checkpoints."""
    if is_checkpoint(uri):
        return True
    try:
        return not storage.status(uris.join(uri, contract.CHAIN_FILE)).is_directory
    except StorageNotFound:
        return False


def _copy(storage: Storage, uri: str, directory: Path, cancelled: threading.Event) -> None:
    files = []
    root = uris.parse(uri).path
    for status in walk(storage, uri):
        target = directory / uris.parse(status.path).path[len(root) :].lstrip("/")
        if status.is_directory:
            target.mkdir(mode=0o700)
        else:
            files.append((status.path, target))

    def copy(file: tuple[str, Path]) -> int:
        return download(storage, *file, cancelled=cancelled)

    for _ in in_parallel(copy, files, _AT_ONCE, "warm-start"):
        pass
