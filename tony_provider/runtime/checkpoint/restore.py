"""The restoring of a committed checkpoint into a task's checkpoint directory."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.artifacts import checksum
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.checkpoint import checkpoint_model
from tony_provider.runtime.checkpoint.catalog import read_stored
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointFile, Manifest, StoredCheckpoint
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.storage import Storage, StorageNotFound, uris
from tony_provider.runtime.storage.base import CHUNK

log = logging.getLogger(__name__)

ASIDE = "set-aside"  # beside the checkpoint directory: what was in it before
_TEMPORARY = ".restoring-"
_LONG_AGO = 60.0  # seconds, after which no format takes a file for one that is being written


@attrs.frozen
class Restored:
    """What a checkpoint directory holds after a restore."""

    stored: StoredCheckpoint
    entry: Path  # what user code loads
    copied: int  # bytes that came from the store
    reused: int  # bytes that were here already


def restore(
    storage: Storage,
    resume: ResumePoint,
    directory: Path,
    rank: int,
    *,
    cancelled: threading.Event,
    aside: Optional[Path] = None,
    reuse: Sequence[Path] = (),
    at_once: int = 4,
) -> Restored:
    """Make ``directory`` hold exactly that committed checkpoint, for one rank.

    That is the files of ``rank``, and of the others those whose paths are not taken by its own. Files that are in
    ``directory`` or in one of ``reuse`` already, with the size and checksum wanted, are linked and not copied; the
    others come several at once. What else was in ``directory`` goes to ``aside`` (default: beside it), where it stays
    until the next time. On any exception ``directory`` is as it was.

    Blocks. Raises DamagedCheckpoint (also when it is gone, or another one than was meant), Cancelled, StorageError,
    OSError.
    """
    stored = _stored(storage, resume)
    manifest = stored.manifest
    wanted = choose_files(manifest, rank)
    aside = aside or directory.with_name(ASIDE)
    if shutil.disk_usage(directory.parent).free < manifest.size:
        shutil.rmtree(aside, ignore_errors=True)
    prepared = directory.with_name(_TEMPORARY + secrets.token_hex(4))
    prepared.mkdir(mode=0o700)
    try:
        work = _Work(storage, stored.uri, prepared, (directory, *reuse), cancelled)
        reused = sum(work.run(wanted, at_once))
        _date(prepared, wanted, min(manifest.committed_ms / 1000, time.time() - _LONG_AGO))
        _put_in_place(prepared, directory, aside)
    except BaseException:
        shutil.rmtree(prepared, ignore_errors=True)
        raise
    total = sum(file.size for file in wanted)
    return Restored(stored, directory / manifest.entry, total - reused, reused)


def _stored(storage: Storage, resume: ResumePoint) -> StoredCheckpoint:
    try:
        stored = read_stored(storage, resume.uri)
    except StorageNotFound as error:
        raise DamagedCheckpoint(resume.uri, "it has no manifest, or is gone") from error
    if resume.checksum and stored.checksum != resume.checksum:
        raise DamagedCheckpoint(resume.uri, "its manifest is not the one that was committed")
    return stored


def empty(directory: Path, *, aside: Optional[Path] = None) -> None:
    """Make ``directory`` an empty one, for training from step 0; what was in it goes to ``aside``. Raises OSError."""
    prepared = directory.with_name(_TEMPORARY + secrets.token_hex(4))
    prepared.mkdir(mode=0o700)
    try:
        _put_in_place(prepared, directory, aside or directory.with_name(ASIDE))
    except BaseException:
        shutil.rmtree(prepared, ignore_errors=True)
        raise


def choose_files(manifest: Manifest, rank: int) -> list[CheckpointFile]:
    """The files of a checkpoint for one rank: for each path its own, else that of the lowest rank that has one."""
    chosen: dict[str, CheckpointFile] = {}
    for file in sorted(manifest.files, key=lambda file: (file.rank != rank, file.rank)):
        chosen.setdefault(file.path, file)
    return [chosen[path] for path in sorted(chosen)]


@attrs.frozen
class _Work:
    storage: Storage
    uri: str
    target: Path
    sources: tuple[Path, ...]
    cancelled: threading.Event

    def run(self, files: Iterable[CheckpointFile], at_once: int) -> list[int]:
        """For each file the bytes that need not be copied. The first error ends it, once all threads have ended."""
        stop = threading.Event()
        with ThreadPoolExecutor(at_once, thread_name_prefix="restore") as pool:
            # The largest first, so that none of them is alone at the end.
            ordered = sorted(files, key=lambda file: -file.size)
            futures = [pool.submit(self._fetch, file, stop) for file in ordered]
            done, rest = wait(futures, return_when=FIRST_EXCEPTION)
            stop.set()
            for future in rest:
                future.cancel()
        failed = [future.exception() for future in futures if future.done() and not future.cancelled()]
        first = next((error for error in failed if error is not None and not isinstance(error, Cancelled)), None)
        if first is not None:
            raise first
        return [future.result() for future in done]

    def _fetch(self, file: CheckpointFile, stop: threading.Event) -> int:
        target = self.target / file.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._reuse(file, target):
            return file.size
        try:
            self._copy(file, target, stop)
        except StorageNotFound as error:
            raise DamagedCheckpoint(self.uri, f"{file.path} of rank {file.rank} is missing") from error
        return 0

    def _reuse(self, file: CheckpointFile, target: Path) -> bool:
        for directory in self.sources:
            source = directory / file.path
            try:
                if source.is_symlink() or not source.is_file() or source.stat().st_size != file.size:
                    continue
                # What is summed up is what was linked, whatever becomes of the name; and always, since a file that was
                # rewritten in place may look unchanged.
                os.link(source, target, follow_symlinks=False)
                if self._checksum(target, file) == file.checksum:
                    return True
                target.unlink()
            except OSError as error:
                log.info("%s is not used again: %s", source, error)
                target.unlink(missing_ok=True)
        return False

    def _checksum(self, path: Path, file: CheckpointFile) -> str:
        return checksum.file_checksum(path, self._algorithm(file), cancelled=self.cancelled)

    def _algorithm(self, file: CheckpointFile) -> str:
        try:
            return checksum.algorithm_of(file.checksum)
        except checksum.UnknownChecksum as error:
            raise DamagedCheckpoint(self.uri, f"{file.path}: {error}") from error

    def _copy(self, file: CheckpointFile, target: Path, stop: threading.Event) -> None:
        """Read a second time before it counts as damaged: on their way nothing but this looks after the bytes."""
        problem = self._read(file, target, stop)
        if problem:
            log.warning("%s of rank %d %s; reading it once more", file.path, file.rank, problem)
            target.unlink()
            problem = self._read(file, target, stop)
        if problem:
            raise DamagedCheckpoint(self.uri, f"{file.path} of rank {file.rank} {problem}")

    def _read(self, file: CheckpointFile, target: Path, stop: threading.Event) -> str:
        """From the store into ``target``. What is wrong with what came; empty: nothing."""
        source_uri = uris.join(
            checkpoint_model.rank_directory(self.uri, file.rank), checkpoint_model.stored_path(file.path)
        )
        summed = checksum.Checksum(self._algorithm(file))
        size = 0
        with self.storage.open_read(source_uri) as source, target.open("xb", buffering=0) as copy:
            target.chmod(0o600)
            while chunk := source.read(CHUNK):
                if self.cancelled.is_set() or stop.is_set():
                    raise Cancelled(f"restoring {self.uri} was cancelled")
                summed.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[copy.write(view) :]
                size += len(chunk)
        if size != file.size:
            return f"has {size} bytes, not {file.size}"
        return "" if summed.text == file.checksum else "is not what was committed"


def _date(directory: Path, files: Sequence[CheckpointFile], when: float) -> None:
    """All files as old as the checkpoint: some formats tell by times whether their files belong together."""
    for file in files:
        os.utime(directory / file.path, (when, when), follow_symlinks=False)


def _put_in_place(prepared: Path, directory: Path, aside: Path) -> None:
    """``prepared`` becomes ``directory``; what that was becomes ``aside``, in place of what that was."""
    if aside.exists():
        doomed = aside.with_name(_TEMPORARY + secrets.token_hex(4))
        aside.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        directory.rename(aside)
    try:
        prepared.rename(directory)
    except OSError:
        if aside.exists():
            aside.rename(directory)
        raise
