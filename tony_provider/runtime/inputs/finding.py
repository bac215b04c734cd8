"""Finding the shards of an input: the files that its paths name, or pieces of them.

A path is a file, a directory (every file below it), or a pattern, whose ``*``, ``?`` and ``[…]`` stand for a part of
one name and whose ``**`` stands for any directories. Names that begin with ``_`` or ``.`` are left out, as Hadoop does
it, unless the path itself says them: these are marks such as ``_SUCCESS``, checksums, and files on their way.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.inputs.cutting import UncutError, cut
from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.spec.model import InputSpec
from tony_provider.runtime.spec.problems import child, item
from tony_provider.runtime.storage import FileStatus, Storage, StorageNotADirectory, StorageNotFound, local_path, uris
from tony_provider.runtime.storage.errors import StorageUnsupported

_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_ANY_DIRECTORIES = "**"


def fixed_directory(path: str) -> str:
    """Return the URI of a path of an input, or of the directory before its first part with a pattern."""
    parsed = uris.parse(path)
    parts = itertools.takewhile(lambda part: not _MAGIC.search(part), parsed.path.split("/"))
    return str(attrs.evolve(parsed, path="/".join(parts) or "/"))


class BadInputError(Exception):
    """An input that cannot be dealt; the message has the path of the key in the job, and says what to do."""


@attrs.frozen
class _Directories:
    """The directories of one store, as they are looked at one after the other."""

    storage: Storage
    looks: Callable[[], None]

    def entries(self, directory: str) -> list[FileStatus]:
        """What is in it, by name; nothing where it went away or is no directory."""
        self.looks()
        try:
            found = self.storage.list(directory)
        except (StorageNotFound, StorageNotADirectory):
            return []
        return [entry for entry in found if not (entry.is_directory and _leads_back(entry.path))]


def _leads_back(directory: str) -> bool:
    """Whether it is a link to a directory that it is in: all files there would be found again and again."""
    if uris.scheme(directory) != "file":
        return False
    path = Path(local_path(directory))
    return path.is_symlink() and path.resolve() in (parent.resolve() for parent in path.parents)


def find(
    name: str, spec: InputSpec, stores: InputStores, looks: Callable[[], None] = lambda: None
) -> Iterator[InputShard]:
    """The shards of an input: by path as written, then by name; one that two paths name comes once.

    ``looks`` is called before each directory, and what it raises ends the search. Blocks. Raises BadInputError for a
    path that names nothing, and for one that no store is known for; StorageError.
    """
    named = (_named_at(name, spec, index, stores, looks) for index in range(len(spec.paths)))
    files = itertools.chain.from_iterable(named)
    yield from _cut(name, spec, _once(files) if len(spec.paths) > 1 else files, stores, looks)


def find_at(
    name: str, spec: InputSpec, index: int, stores: InputStores, looks: Callable[[], None] = lambda: None
) -> Iterator[InputShard]:
    """The shards of one of its paths; otherwise like ``find``."""
    yield from _cut(name, spec, _named_at(name, spec, index, stores, looks), stores, looks)


def _cut(
    name: str, spec: InputSpec, files: Iterable[FileStatus], stores: InputStores, looks: Callable[[], None]
) -> Iterator[InputShard]:
    try:
        yield from cut(spec, files, stores, looks)
    except UncutError as error:
        raise BadInputError(f"{child('inputs', name)}: {error}") from error


def _once(files: Iterable[FileStatus]) -> Iterator[FileStatus]:
    seen: set[bytes] = set()  # hashes: a million of them take less than their names
    for status in files:
        mark = hashlib.blake2b(status.path.encode(), digest_size=16).digest()
        if mark not in seen:
            seen.add(mark)
            yield status


def _named_at(
    name: str, spec: InputSpec, index: int, stores: InputStores, looks: Callable[[], None]
) -> Iterator[FileStatus]:
    """The files that one of its paths names."""
    written = spec.paths[index]
    where = item(child(child("inputs", name), "paths"), index)
    empty = True
    for status in _files(where, written, stores, looks):
        empty = False
        yield status
    if empty:
        raise BadInputError(
            f"{where}: {written} names no file (names that begin with _ or . do not count); correct the path, or have "
            "what writes it run before this job"
        )


def _files(where: str, written: str, stores: InputStores, looks: Callable[[], None]) -> Iterator[FileStatus]:
    try:
        directories = _Directories(stores.of(written), looks)
    except StorageUnsupported as error:
        raise BadInputError(f"{where}: {error}") from error
    parsed = uris.parse(written)
    parts = [part for part in parsed.path.split("/") if part]
    fixed = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    start = f"{parsed.scheme}://{parsed.authority}/" + "/".join(parts[:fixed])
    try:
        if fixed < len(parts):
            yield from _matching(directories, start, parts[fixed:])
        else:
            yield from _all_of(directories, directories.storage.status(start))
    except StorageNotFound as error:
        raise BadInputError(f"{where}: there is no {error.uri}; correct the path") from error


def _all_of(directories: _Directories, status: FileStatus) -> Iterator[FileStatus]:
    """The file itself, or every file below the directory that is not hidden."""
    if not status.is_directory:
        yield status
        return
    for entry in directories.entries(status.path):
        if not entry.name.startswith(_HIDDEN):
            yield from _all_of(directories, entry)


def _matching(directories: _Directories, directory: str, patterns: Sequence[str]) -> Iterator[FileStatus]:
    """What below the directory matches, a pattern for each level; of directories that match, their files."""
    pattern, below = patterns[0], patterns[1:]
    if pattern == _ANY_DIRECTORIES:
        while below and below[0] == _ANY_DIRECTORIES:
            below = below[1:]
        yield from _at_any_depth(directories, directory, below)
        return
    for entry in directories.entries(directory):
        if not _matches(entry.name, pattern):
            continue
        if not below:
            yield from _all_of(directories, entry)
        elif entry.is_directory:
            yield from _matching(directories, entry.path, below)


def _at_any_depth(directories: _Directories, directory: str, below: Sequence[str]) -> Iterator[FileStatus]:
    """What matches ``below`` in this directory, or in one below it."""
    if below:
        yield from _matching(directories, directory, below)
    for entry in directories.entries(directory):
        if entry.name.startswith(_HIDDEN):
            continue
        if entry.is_directory:
            yield from _at_any_depth(directories, entry.path, below)
        elif not below:
            yield entry


def _matches(name: str, pattern: str) -> bool:
    if name.startswith(_HIDDEN) and not pattern.startswith(_HIDDEN):
        return False
    return fnmatch.fnmatchcase(name, pattern)
