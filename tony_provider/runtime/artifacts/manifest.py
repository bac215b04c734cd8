"""The manifest of a stored tree: its entries, and the stored objects that hold the bytes of its files.

A manifest comes from the storage, where other programs of the same user can write. ``check`` rejects every manifest
that could place something outside a directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

import attrs

from tony_provider.runtime.artifacts import checksum
from tony_provider.runtime.artifacts.tree import Kind, inner_target
from tony_provider.runtime.text import is_writable

LARGEST_NUMBER = 1 << 53  # limit of sizes, offsets and times in microseconds: JSON readers keep such integers exact
_OBJECT = re.compile(r"[0-9a-z][0-9a-z-]{0,99}")


class InvalidManifest(ValueError):  # noqa: N818 - describes what was found
    """A manifest does not describe a valid tree. ``str()`` gives the reason."""


@attrs.frozen
class Entry:
    """A file, link or directory of a stored tree."""

    path: str  # below the tree's root, with slashes
    kind: Kind
    mode: int  # permission bits
    mtime_ns: int  # epoch
    size: int = 0  # of a file, in bytes
    checksum: str = ""  # of a file; see the module checksum
    object: str = ""  # name of the stored object that holds the file; empty for an empty file
    offset: int = 0  # of the file in the object, in bytes
    target: str = ""  # of a link, relative to the link's directory


@attrs.frozen
class StoredTree:
    """The entries of one tree, and the sizes of the stored objects that its files lie in."""

    entries: list[Entry]  # sorted by path
    objects: dict[str, int]  # bytes by name

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(entry.size for entry in self.entries)

    def check(self) -> None:
        """Raise InvalidManifest if the entries cannot form a tree below one directory."""
        kinds: dict[str, Kind] = {}
        for entry in self.entries:
            if entry.path in kinds:
                raise InvalidManifest(f"it names {entry.path!r} twice")
            kinds[entry.path] = entry.kind
            _check_entry(entry, self.objects)
        for path in kinds:
            parent = posixpath.dirname(path)
            if parent and kinds.get(parent) is not Kind.DIRECTORY:
                raise InvalidManifest(f"{parent!r}, which holds {path!r}, is not a directory in it")
        for name, size in self.objects.items():
            if not is_object_name(name):
                raise InvalidManifest(f"{name!r} is not the name of a stored object")
            _check_numbers(f"the object {name}", [size])
        self._check_places()
        if any(one.path > other.path for one, other in zip(self.entries, self.entries[1:])):
            raise InvalidManifest("its entries are not sorted by path")

    def _check_places(self) -> None:
        """Raise InvalidManifest if files overlap in an object. They may share exactly the same place."""
        places = sorted({(entry.object, entry.offset, entry.size) for entry in self.entries if entry.size})
        for (name, offset, size), following in zip(places, places[1:]):
            if following[0] == name and following[1] < offset + size:
                raise InvalidManifest(f"two files overlap in the object {name}")


def is_object_name(name: str) -> bool:
    """Return whether a stored object can have this name."""
    return _OBJECT.fullmatch(name) is not None


def is_inside(path: str) -> bool:
    """Return whether a path with slashes stays below the directory to which it is appended."""
    return "\0" not in path and is_writable(path) and all(part not in ("", ".", "..") for part in path.split("/"))


def _check_entry(entry: Entry, objects: Mapping[str, int]) -> None:
    path = entry.path
    if not is_inside(path):
        raise InvalidManifest(f"it names {path!r}, which is not a path below the directory")
    _check_numbers(path, [entry.size, entry.offset, entry.mtime_ns // 1000])
    if not 0 <= entry.mode <= 0o777:
        raise InvalidManifest(f"the mode of {path!r} is not a permission")
    if entry.kind is Kind.LINK and inner_target(path, entry.target) != entry.target:
        raise InvalidManifest(f"the link {path!r} leads out of the directory")
    if entry.kind is not Kind.FILE and (entry.size or entry.object):
        raise InvalidManifest(f"{path!r} has bytes but is not a file")
    if entry.kind is Kind.FILE:
        try:
            checksum.algorithm_of(entry.checksum)
        except checksum.UnknownChecksum as error:
            raise InvalidManifest(f"{path!r}: {error}") from error
        if entry.size and entry.offset + entry.size > objects.get(entry.object, -1):
            raise InvalidManifest(f"{path!r} does not fit into its object {entry.object!r}")


def _check_numbers(what: str, numbers: Iterable[int]) -> None:
    if not all(0 <= number <= LARGEST_NUMBER for number in numbers):
        raise InvalidManifest(f"a number of {what} is negative or above 2**53")
