"""The error that an output cannot get to its path."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.jobspec.model import OutputCommit, OutputLayout, OutputSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.output_place import (
    DATA_DIRECTORY,
    DATA_FILE,
    OutputPart,
    OutputPlace,
    task_directory,
)
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


class PublishError(Exception):
    """An output cannot get to its path, now or later; the message has the path of the key in the job."""


_MOST_BYTES = 4096


@attrs.frozen
class OutputMark:
    """Who has written an output, or does so."""

    application_id: str
    training: str  # the name of its identity: the same over all tries
    written_ms: int = 0  # epoch, when it was complete
    files: int = 0
    bytes: int = 0
    cleared: bool = True  # what was there before is gone
    version: int = 1


def read_mark(storage: Storage, directory: str, name: str) -> Optional[OutputMark]:
    """The mark of this name in a directory; None when there is none of ours. Raises StorageError."""
    try:
        data = read_bytes(storage, uris.join(directory, name), length=_MOST_BYTES)
        return load_json(data, OutputMark, ignore_unknown=True)
    except (StorageNotFound, StorageNotADirectory, CodecError):  # Hadoop's own is empty
        return None


def write_mark(storage: Storage, directory: str, name: str, mark: OutputMark) -> None:
    """Raises StorageError."""
    write_atomically(storage, uris.join(directory, name), dump_json(mark), permission=DATA_FILE)


def check_names(files: Iterable[tuple[str, str]], key: str) -> None:
    """Look at all files, each by its part and its path there. Raises PublishError.

    Some hundred bytes for each file.
    """
    numbers: dict[str, int] = {}  # of parts
    seen: dict[bytes, int] = {}  # the part's, by a hash of the path: a million paths would take more
    for part, path in files:
        number = numbers.setdefault(part, len(numbers))
        before = seen.setdefault(hashlib.blake2b(os.fsencode(path), digest_size=16).digest(), number)
        if before != number:
            other = next(name for name, each in numbers.items() if each == before)
            raise PublishError(
                f"{key}: {other} and {part} have both left {replaced(path)}; have each task name its files after "
                "itself (TONY_RANK), or use layout: tasks"
            )


_REMEDY = "name another path, remove it, or write `replace: true`"


def target_problem(storage: Storage, name: str, spec: OutputSpec, training: str) -> str:
    """Why the output may not be written, with the path of the key and what to do; empty: it may. Blocks.

    ``training`` is the name of its identity. Raises StorageError.
    """
    where = f"{child(child('outputs', name), 'path')}: {spec.path}"
    if uris.scheme(spec.path) == "file" and (why := _fixed(Path(uris.parse(spec.path).path))):
        return f"{where}: {why}"
    why = "" if spec.replace else _not_ours(storage, spec.path, training)
    return f"{where}: {why}; {_REMEDY}" if why else ""


def _fixed(path: Path) -> str:
    """Why another directory of this machine cannot take the place of what is there."""
    try:
        if path.is_symlink():
            return "it is a symbolic link, in whose place the output would be; name the directory that it leads to"
        if path.is_mount():
            return "a file system is mounted there, in whose place no output can be; name a directory in it"
    except OSError:  # below something that cannot be entered, which whoever makes directories there tells better
        return ""
    return ""


def _not_ours(storage: Storage, target: str, training: str) -> str:
    try:
        if not storage.status(target).is_directory:
            return "a file is there"
        for name in (contract.OUTPUT_MARK_FILE, contract.SUCCESS_FILE):
            mark = read_mark(storage, target, name)
            if mark is not None:
                return (
                    "" if mark.training == training else f"{mark.application_id}, of another training, has written it"
                )
        return "it is not empty, and this training did not write it" if storage.list(target) else ""
    except StorageNotFound:
        return ""


log = logging.getLogger(__name__)

_AT_ONCE = 8  # files that are renamed

CommittedFile = tuple[str, str]
"""A file that a committed shard names: the part that it is in, and its path there."""


@attrs.frozen
class Publication:
    """Puts one output of one application at its path. All methods block, and may be called again after any failure.

    They raise PublishError, StorageError, and what ``look`` does, which is called before whatever changes the path.
    """

    storage: Storage
    name: str
    spec: OutputSpec
    place: OutputPlace
    training: str  # the name of its identity
    look: Callable[[], None] = lambda: None
    user: str = ""  # who ``open`` says we are; empty: the store does not tell its users apart

    def open(self) -> str:
        """Make the staging directory, as a proof that it can be; returns the user whose it is, see ``user``."""
        self._check_target()
        self.storage.make_directories(uris.parent(self.place.target), permission=DATA_DIRECTORY)
        self.storage.make_directories(self.place.staging, permission=DATA_DIRECTORY)
        return self._check_staging()

    def check(self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]] = tuple) -> None:
        """Find what would keep ``publish`` from its work, as far as it can be seen before. Publishes nothing."""
        if self._finished() is None:
            self._check_target()
            self._check_names(parts, self._further(parts, committed))

    def publish(
        self, parts: Sequence[OutputPart], committed: Callable[[], Iterable[CommittedFile]] = tuple
    ) -> OutputStatus:
        """Have at the path: these parts as a whole, and of others the files that committed shards name.

        ``committed`` is called more than once.
        """
        mark = self._finished()
        if mark is None:
            mark = self._publish(parts, committed)
        try:
            clear_away(self.storage, self.place)
        except StoragePermissionDenied as error:  # it is another user's, who can keep it there for ever
            log.warning("what is beside %s stays there: %s", self.place.uri, error)
        return OutputStatus(self.name, self.place.uri, mark.files, mark.bytes)

    def publish_part(self, part: OutputPart) -> None:
        """Have this part at the path, where parts appear one after the other. One that comes late changes nothing."""
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
        """The directory that parts are moved to."""
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
        """Those that do not come with their parts."""
        whole = {each.part for each in parts}
        return (each for each in committed() if each[0] not in whole and self._is_wanted(each[1]))

    def _check_names(self, parts: Sequence[OutputPart], further: Iterable[CommittedFile]) -> None:
        if self.spec.layout is OutputLayout.FLAT:
            check_names(self._names(parts, further), self._key)

    def _own_mark(self, name: str) -> Optional[OutputMark]:
        """The mark at the path that this application has written. What it says anybody can write: its owner counts."""
        mark = read_mark(self.storage, self.place.target, name)
        if mark is None or mark.application_id != self.place.application_id:
            return None
        owner = self.storage.status(uris.join(self.place.target, name)).owner
        return mark if not self.user or owner == self.user else None

    def _check_staging(self) -> str:
        """Whose it is: ours. Where others may write, too, somebody may have made it before, and change what is there.

        What we make there, under a name that nobody knows, tells who we are to this store.
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
                f"{child(self._key, 'path')}: {self.place.staging} is {owner}'s, who could change what is put there; "
                "remove it, or name a path in a directory where nobody else may write"
            )
        return user

    def _check_target(self) -> None:
        problem = target_problem(self.storage, self.name, self.spec, self.training)
        if problem:
            raise PublishError(problem)

    def _swap(self) -> None:
        """One rename, where nothing is at the path; otherwise two."""
        storage, place = self.storage, self.place
        self._check_target()
        self.look()
        if storage.exists(place.target):
            storage.remove(place.former, recursive=True)
            storage.rename(place.target, place.former)
        storage.rename(place.assembled, place.target)

    def _begin_in_place(self) -> None:
        """Have the path be ours, with nothing in it but what was put there from here."""
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
        if self.storage.renames_at_once and not self.storage.exists(source):  # its files may go, but it stays
            raise self._missing(source)
        below = task_directory(part.part) if self.spec.layout is OutputLayout.TASKS else ""
        directory = uris.join(self._base, below)

        def take(path: str) -> None:
            self._move_file(uris.join(source, path), uris.join(directory, path))

        for _ in in_parallel(take, self._files_of(source), _AT_ONCE, "publish"):
            pass

    def _take_committed(self, file: CommittedFile) -> int:
        """Returns its size in bytes."""
        part, path = file
        below = part if self.spec.layout is OutputLayout.TASKS else ""
        target = uris.join(self._base, below, path)
        self._move_file(uris.join(self.place.part(part), path), target)
        return self.storage.status(target).size

    def _move(self, source: str, target: str) -> None:
        try:
            self.storage.rename(source, target)
        except StorageNotFound as error:
            if not self.storage.exists(target):
                raise self._missing(source) from error

    def _move_file(self, source: str, target: str) -> None:
        """What is at its target already is the same file: names were looked at before."""
        with suppress(StorageNotFound):
            self.storage.rename(source, target, overwrite=True)
            return
        self.storage.make_directories(uris.parent(target), permission=DATA_DIRECTORY)
        try:
            self.storage.rename(source, target, overwrite=True)
        except StorageNotFound as error:
            if not self.storage.exists(target):
                raise self._missing(source) from error

    def _missing(self, uri: str) -> PublishError:
        shared = "; all nodes must have the path's file system mounted" if uris.scheme(uri) == "file" else ""
        return PublishError(f"{self._key}: {uri}, which a task has left, is not there any more{shared}")

    @property
    def _key(self) -> str:
        return child("outputs", self.name)

    def _names(self, parts: Sequence[OutputPart], further: Iterable[CommittedFile]) -> Iterator[CommittedFile]:
        """Every file that is to lie beside the others, as far as it does not yet."""
        for part in parts:
            for path in self._files_of(self.place.part(part.part)):
                yield part.part, path
        yield from further

    def _files_of(self, directory: str) -> Iterator[str]:
        """The paths of the files below a part's directory. None of them, where it was moved already."""
        beginning = len(directory) + 1
        with suppress(StorageNotFound):
            for status in walk(self.storage, directory):
                path = status.path[beginning:]
                if not status.is_directory and self._is_wanted(path):
                    yield path

    def _is_wanted(self, path: str) -> bool:
        """Whether a file of a part is to be at the path: not in the place of a mark of ours."""
        return not (self.spec.layout is OutputLayout.FLAT and path in _OWN)


_OWN = (contract.SUCCESS_FILE, contract.OUTPUT_MARK_FILE)


def clear_away(storage: Storage, place: OutputPlace) -> None:
    """Remove whatever is beside the path of an output that nobody makes any more. Blocks. Raises StorageError.

    What was at the path before, and was moved away in vain, goes back.
    """
    if storage.exists(place.former):
        if storage.exists(place.target):
            storage.remove(place.former, recursive=True)
        else:
            storage.rename(place.former, place.target)
    storage.remove(place.staging, recursive=True)
