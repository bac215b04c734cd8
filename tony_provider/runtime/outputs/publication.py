"""Publish an output of a job at its path: check the target, move the tasks' files there, and mark it as complete.

Each start of a task writes into a separate staging directory. The files of such a directory are a *part* of the output.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.jobspec.model import OutputCommit, OutputLayout, OutputSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.protocol.status import OutputStatus
from tony_provider.runtime.storage import (
    Storage,
    StorageNotADirectory,
    StorageNotFound,
    StoragePermissionDenied,
    read_bytes,
    uris,
    walk,
    write_atomically,
)

log = logging.getLogger(__name__)


@attrs.frozen
class OutputPart:
    """The files that one start of a task has written for an output, in a separate staging directory."""

    output: str  # name of the output in the job
    part: str  # name of the directory, from ``part_name``
    files: int
    bytes: int


def part_name(task: str, attempt: int, start: int) -> str:
    """Return the name of a part: task, container attempt and process start, such as worker-3.2.1 for worker:3."""
    return f"{contract.path_of_task(task)}.{attempt}.{start}"


def task_directory(part: str) -> str:
    """Return the directory in the output for the task that wrote a part, such as worker-3 for worker-3.2.1.

    If an earlier start committed shards, the files of these shards go into a directory with the part's full name.
    """
    return part.rsplit(".", 2)[0]


DATA_FILE = 0o644
DATA_DIRECTORY = 0o755
"""Others may read outputs; the owner can restrict access by the permissions of a parent directory."""


@attrs.frozen
class OutputPlace:
    """The directories of one output of one application.

    Staging directories are next to the target, so that they share its encryption zone and default ACL. Their names
    begin with _, so that readers of the parent directory ignore them.
    """

    target: str  # URI or path, as in the job
    application_id: str

    @property
    def uri(self) -> str:
        """The target as a URI, even if the job specifies a bare path."""
        return str(uris.parse(self.target))

    @property
    def staging(self) -> str:
        """The directory that contains all parts."""
        return self._beside("")

    @property
    def assembled(self) -> str:
        """The subdirectory of ``staging`` where parts are collected. At the end it is renamed to the target."""
        return uris.join(self.staging, "out")

    @property
    def former(self) -> str:
        """The directory that holds the target's former content during the swap."""
        return self._beside(".old")

    def part(self, part: str) -> str:
        """Return the directory of one part."""
        return uris.join(self.staging, part)

    def of_part(self, uri: str) -> Optional[tuple[str, str]]:
        """Return the name of the part that contains a file, and the file's path in the part; None if there is none."""
        beginning = self.staging + "/"
        part, _, path = uri[len(beginning) :].partition("/")
        return (part, path) if uri.startswith(beginning) and path else None

    def _beside(self, ending: str) -> str:
        target = uris.parse(self.target)
        return str(target.parent.child(f"_{target.name}.{self.application_id}{ending}"))


class PublishError(Exception):
    """An output cannot be published, and a retry would fail as well. The message names the key in the job."""


_MOST_BYTES = 4096


@attrs.frozen
class OutputMark:
    """File in an output directory that records which application and training wrote it."""

    application_id: str
    training: str  # name of the training's identity; stays the same over all tries
    written_ms: int = 0  # epoch milliseconds when the output was completed; 0 until then
    files: int = 0
    bytes: int = 0
    cleared: bool = True  # whether the directory's former content has been removed
    version: int = 1


def read_mark(storage: Storage, directory: str, name: str) -> Optional[OutputMark]:
    """Return the mark in the file ``name`` of a directory. Raises StorageError.

    Returns None if there is no such file, or if another program wrote it.
    """
    try:
        data = read_bytes(storage, uris.join(directory, name), length=_MOST_BYTES)
        return load_json(data, OutputMark, ignore_unknown=True)
    except (StorageNotFound, StorageNotADirectory, CodecError):  # Hadoop's own _SUCCESS is empty
        return None


def write_mark(storage: Storage, directory: str, name: str, mark: OutputMark) -> None:
    """Write a mark atomically. Raises StorageError."""
    write_atomically(storage, uris.join(directory, name), dump_json(mark), permission=DATA_FILE)


def check_names(files: Iterable[tuple[str, str]], key: str) -> None:
    """Raise PublishError if two parts have a file with the same path.

    ``files``: part and path of each file. Needs some hundred bytes of memory for each file.
    """
    numbers: dict[str, int] = {}  # number by part
    seen: dict[bytes, int] = {}  # number of the part, by hash of the path, which needs less memory than the path
    for part, path in files:
        number = numbers.setdefault(part, len(numbers))
        before = seen.setdefault(hashlib.blake2b(os.fsencode(path), digest_size=16).digest(), number)
        if before != number:
            other = next(name for name, each in numbers.items() if each == before)
            raise PublishError(
                f"{key}: {other} and {part} have both written {replaced(path)}; let each task name its files after "
                "itself (TONY_RANK), or use layout: tasks"
            )


_REMEDY = "name another path, remove it, or write `replace: true`"


def target_problem(storage: Storage, name: str, spec: OutputSpec, training: str) -> str:
    """Return why the output may not be written, with the key and a remedy, or an empty string. Blocks.

    ``training`` is the name of the training's identity. Raises StorageError.
    """
    where = f"{child('outputs', name, 'path')}: {spec.path}"
    if why := storage.rename_target_problem(spec.path):
        return f"{where}: {why}"
    why = "" if spec.replace else _not_ours(storage, spec.path, training)
    return f"{where}: {why}; {_REMEDY}" if why else ""


def _not_ours(storage: Storage, target: str, training: str) -> str:
    try:
        if not storage.status(target).is_directory:
            return "it is an existing file"
        for name in (contract.OUTPUT_MARK_FILE, contract.SUCCESS_FILE):
            mark = read_mark(storage, target, name)
            if mark is not None:
                return (
                    ""
                    if mark.training == training
                    else f"application {mark.application_id} of another training wrote it"
                )
        return "it is not empty, and this training did not write it" if storage.list(target) else ""
    except StorageNotFound:
        return ""


_AT_ONCE = 8  # files that are renamed concurrently

CommittedFile = tuple[str, str]
"""A file that a committed shard names: its part, and its path in the part."""


@attrs.frozen
class Publication:
    """Publishes one output of one application. All methods block, and can be repeated after any failure.

    The methods raise PublishError, StorageError and the errors of ``look``. ``look`` is called before each change of
    the target, so that its error can stop the publication.
    """

    storage: Storage
    name: str
    spec: OutputSpec
    place: OutputPlace
    training: str  # name of the training's identity
    look: Callable[[], None] = lambda: None
    user: str = ""  # this job's user on the store, as ``open`` returned it; empty if the store has no users

    def open(self) -> str:
        """Check the target and create the staging directory. Return this job's user on the store, for ``user``."""
        self._check_target()
        self.storage.make_directories(uris.parent(self.place.target), permission=DATA_DIRECTORY)
        self.storage.make_directories(self.place.staging, permission=DATA_DIRECTORY)
        return self._check_staging()

    def check(self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]] = tuple) -> None:
        """Raise PublishError if ``publish`` would find a problem with the target or with the names of files."""
        if self._finished() is None:
            self._check_target()
            self._check_names(parts, self._further(parts, committed))

    def publish(
        self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]] = tuple
    ) -> OutputStatus:
        """Publish all files of ``parts``. Other parts contribute only the files that committed shards name.

        ``committed`` returns these files. It is called more than once.
        """
        mark = self._finished()
        if mark is None:
            mark = self._publish(parts, committed)
        try:
            clear_away(self.storage, self.place)
        except StoragePermissionDenied as error:  # another user owns an entry and prevents its removal
            log.warning("could not remove the staging files next to %s: %s", self.place.uri, error)
        return OutputStatus(self.name, self.place.uri, mark.files, mark.bytes)

    def publish_part(self, part: OutputPart) -> None:
        """Publish one part before the job ends, for ``commit: task``. Does nothing if the output is complete."""
        if self._finished() is not None:
            return
        self.look()
        self._begin_in_place()
        self._take_whole(part)

    # ---- the steps ---------------------------------------------------------------------------------------------

    @property
    def _in_place(self) -> bool:
        return self.spec.commit is OutputCommit.TASK or not self.storage.renames_at_once

    @property
    def _base(self) -> str:
        """The directory to which parts are moved."""
        return self.place.target if self._in_place else self.place.assembled

    def _finished(self) -> Optional[OutputMark]:
        mark = self._own_mark(contract.SUCCESS_FILE)
        if mark is None:
            return None
        self.storage.remove(uris.join(self.place.target, contract.OUTPUT_MARK_FILE))
        return mark

    def _publish(self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]]) -> OutputMark:
        self._check_names(parts, self._further(parts, committed))
        self.look()
        if self._in_place:
            self._begin_in_place()
        else:
            self.storage.make_directories(self._base, permission=DATA_DIRECTORY)
        for part in parts:
            self._take_whole(part)
        sizes = list(in_parallel(self._take_committed, self._further(parts, committed), _AT_ONCE, "publish"))
        files, size = len(sizes) + sum(each.files for each in parts), sum(sizes) + sum(each.bytes for each in parts)
        mark = OutputMark(self.place.application_id, self.training, epoch_ms(), files, size)
        write_mark(self.storage, self._base, contract.SUCCESS_FILE, mark)
        if self._in_place:
            self.storage.remove(uris.join(self.place.target, contract.OUTPUT_MARK_FILE))
        else:
            self._swap()
        return mark

    def _further(
        self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]]
    ) -> Iterator[CommittedFile]:
        """Return the files of committed shards that are not in ``parts``."""
        whole = {each.part for each in parts}
        return (each for each in committed() if each[0] not in whole and self._is_wanted(each[1]))

    def _check_names(self, parts: Sequence[OutputPart], further: Iterable[CommittedFile]) -> None:
        if self.spec.layout is OutputLayout.FLAT:
            check_names(self._names(parts, further), self._key)

    def _own_mark(self, name: str) -> Optional[OutputMark]:
        """Return the mark ``name`` in the target if this application has written it, otherwise None.

        Another user can forge a mark, so the owner of its file is checked as well.
        """
        mark = read_mark(self.storage, self.place.target, name)
        if mark is None or mark.application_id != self.place.application_id:
            return None
        owner = self.storage.status(uris.join(self.place.target, name)).owner
        return mark if not self.user or owner == self.user else None

    def _check_staging(self) -> str:
        """Return this job's user on the store. Raise PublishError if another user owns the staging directory.

        If others may write to the parent directory, another user may have created the staging directory first. To
        find this job's user, the method creates a directory with a random name and reads its owner.
        """
        probe = uris.join(self.place.staging, f"_{secrets.token_hex(8)}")
        self.storage.make_directories(probe, permission=DATA_DIRECTORY)
        try:
            user = self.storage.status(probe).owner if self.storage.exists(probe) else ""
        finally:
            self.storage.remove(probe, recursive=True)
        owner = self.storage.status(self.place.staging).owner if user else ""
        if owner != user:
            raise PublishError(
                f"{child(self._key, 'path')}: {self.place.staging} belongs to {owner}, who could change the output; "
                "remove it, or name a path in a directory that no other user can write to"
            )
        return user

    def _check_target(self) -> None:
        if problem := target_problem(self.storage, self.name, self.spec, self.training):
            raise PublishError(problem)

    def _swap(self) -> None:
        """Replace the target by the assembled directory. An existing target is first renamed to ``former``."""
        storage, place = self.storage, self.place
        self._check_target()
        self.look()
        if storage.exists(place.target):
            storage.remove(place.former, recursive=True)
            storage.rename(place.target, place.former)
        storage.rename(place.assembled, place.target)

    def _begin_in_place(self) -> None:
        """Write a mark into the target, and remove everything that this application did not write there."""
        storage, target = self.storage, self.place.target
        mark = self._own_mark(contract.OUTPUT_MARK_FILE)
        if mark is not None and mark.cleared:
            return
        if mark is None:
            self._check_target()
            self.look()
            with suppress(StorageNotFound):
                if not storage.status(target).is_directory:
                    storage.remove(target)
            storage.make_directories(target, permission=DATA_DIRECTORY)
        begun = OutputMark(self.place.application_id, self.training, cleared=False)
        write_mark(storage, target, contract.OUTPUT_MARK_FILE, begun)
        storage.remove(uris.join(target, contract.SUCCESS_FILE))
        for each in storage.list(target):
            if each.name != contract.OUTPUT_MARK_FILE:
                storage.remove(each.path, recursive=True)
        write_mark(storage, target, contract.OUTPUT_MARK_FILE, attrs.evolve(begun, cleared=True))

    # ---- moving ------------------------------------------------------------------------------------------------

    def _take_whole(self, part: OutputPart) -> None:
        source = self.place.part(part.part)
        if self.spec.layout is OutputLayout.TASKS and self.storage.renames_at_once:
            self._move(source, uris.join(self._base, task_directory(part.part)))
            return
        # An earlier attempt may have moved single files, but never removes the directory: without it, files are lost.
        if self.storage.renames_at_once and not self.storage.exists(source):
            raise self._missing(source)
        below = task_directory(part.part) if self.spec.layout is OutputLayout.TASKS else ""
        directory = uris.join(self._base, below)

        def take(path: str) -> None:
            self._move_file(uris.join(source, path), uris.join(directory, path))

        for _ in in_parallel(take, self._files_of(source), _AT_ONCE, "publish"):
            pass

    def _take_committed(self, file: CommittedFile) -> int:
        """Move a file that a committed shard names to the output. Return its size in bytes."""
        part, path = file
        below = part if self.spec.layout is OutputLayout.TASKS else ""
        target = uris.join(self._base, below, path)
        self._move_file(uris.join(self.place.part(part), path), target)
        return self.storage.status(target).size

    def _move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        try:
            self.storage.rename(source, target, overwrite=overwrite)
        except StorageNotFound as error:
            if not self.storage.exists(target):
                raise self._missing(source) from error

    def _move_file(self, source: str, target: str) -> None:
        """Move a file. If only the target exists, an earlier attempt has moved the file, because names are unique."""
        with suppress(StorageNotFound):
            self.storage.rename(source, target, overwrite=True)
            return
        self.storage.make_directories(uris.parent(target), permission=DATA_DIRECTORY)
        self._move(source, target, overwrite=True)

    def _missing(self, uri: str) -> PublishError:
        shared = "; all nodes must have the path's file system mounted" if uris.scheme(uri) == "file" else ""
        return PublishError(f"{self._key}: {uri}, which a task wrote, does not exist any more{shared}")

    @property
    def _key(self) -> str:
        return child("outputs", self.name)

    def _names(self, parts: Sequence[OutputPart], further: Iterable[CommittedFile]) -> Iterator[CommittedFile]:
        """Yield part and path of each file that has not been moved yet."""
        for part in parts:
            for path in self._files_of(self.place.part(part.part)):
                yield part.part, path
        yield from further

    def _files_of(self, directory: str) -> Iterator[str]:
        """Yield the paths of the files below a part's directory. Yield nothing if the part has been moved."""
        beginning = len(directory) + 1
        with suppress(StorageNotFound):
            for status in walk(self.storage, directory):
                path = status.path[beginning:]
                if not status.is_directory and self._is_wanted(path):
                    yield path

    def _is_wanted(self, path: str) -> bool:
        """Return whether to publish this file of a part. A file must not replace a marker file of the output."""
        return not (self.spec.layout is OutputLayout.FLAT and path in _OWN)


_OWN = (contract.SUCCESS_FILE, contract.OUTPUT_MARK_FILE)


def clear_away(storage: Storage, place: OutputPlace) -> None:
    """Remove the staging directory and the former content of an output to which no application writes. Blocks.

    If the target is missing because a swap failed, the former content is moved back. Raises StorageError.
    """
    if storage.exists(place.former):
        if storage.exists(place.target):
            storage.remove(place.former, recursive=True)
        else:
            storage.rename(place.former, place.target)
    storage.remove(place.staging, recursive=True)
