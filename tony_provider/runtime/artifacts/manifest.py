"""Manifests of stored trees, checksums of files, and scans of local directory trees.

A scan lists files, symbolic links and directories. It identifies the version of each file by inode, size and times.

Checksums detect damage on a disk, on the network or in the storage, but not manipulation. A checksum begins with its
algorithm (``crc32:0a1b2c3d``), so that another algorithm can be introduced later. CRC-32 is the default because it is
fast: 2 GB/s in a measurement. SHA-256 has 0.3 GB/s, and would take a third of the time of a copy to HDFS. CRC-32
together with the size misses one damaged file in four billion.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Optional, Union

import attrs

from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.storage.base import CHUNK

_LONGEST_LINK = 4096  # maximum bytes of a link's target, as in Linux
_MOST_LEVELS = 200  # maximum number of directories above an entry


class Kind(str, Enum):
    """The kinds of entries that a tree can hold."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"


@attrs.frozen
class FileVersion:
    """Identifies one version of a file. Any write, truncation or replacement changes the version."""

    device: int
    inode: int
    size: int  # bytes
    mtime_ns: int  # epoch
    ctime_ns: int  # epoch; changes even if a program resets mtime_ns after a write

    @classmethod
    def of(cls, found: os.stat_result) -> FileVersion:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def without_ctime(self) -> FileVersion:
        """The version without ctime_ns.

        The ctime also changes when the file is renamed, hard-linked or chmod-ed, although its content stays the same.
        """
        return FileVersion(self.device, self.inode, self.size, self.mtime_ns, 0)


@attrs.frozen
class TreeNode:
    """A file, link or directory of a scanned directory tree."""

    kind: Kind
    mode: int  # permission bits
    version: FileVersion
    target: str = ""  # target of a link, relative to the link's directory


@attrs.frozen
class Tree:
    """The result of one scan of a directory."""

    nodes: Mapping[str, TreeNode]  # by path below the directory, with slashes
    left_out: Mapping[str, str] = attrs.field(factory=dict)  # reason why an entry cannot be copied, by path
    torn: bool = False  # whether an entry vanished during the scan, so that ``nodes`` may be inconsistent
    excluded: Sequence[str] = ()  # paths that match a pattern of ``exclude``, without the paths below them

    @property
    def files(self) -> Mapping[str, TreeNode]:
        return {path: node for path, node in self.nodes.items() if node.kind is Kind.FILE}

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(node.version.size for node in self.files.values())


def scan(directory: Path, *, also_called: Sequence[str] = (), exclude: Sequence[str] = ()) -> Tree:
    """List everything below a directory. Symbolic links are not followed.

    Targets of links into the directory become relative. Links that lead out of the directory are left out.
    ``also_called``: other absolute paths of the directory that links may contain. ``exclude``: glob patterns of paths
    to leave out, with everything below them. A pattern without a slash applies to names at every level.

    Blocks. Returns an empty tree if the directory is missing. Raises OSError if the directory cannot be read.
    """
    return _Scan(directory, (str(directory), *also_called), exclude).run()


class _Scan:
    def __init__(self, directory: Path, roots: Sequence[str], exclude: Sequence[str]) -> None:
        self._directory = directory
        self._roots = [posixpath.normpath(root) for root in roots]
        self._exclude = exclude
        self._nodes: dict[str, TreeNode] = {}
        self._left_out: dict[str, str] = {}
        self._torn = False
        self._excluded: list[str] = []

    def run(self) -> Tree:
        waiting = [""]
        while waiting:
            place = waiting.pop()
            for entry in self._entries(place):
                path = f"{place}/{entry.name}" if place else entry.name
                if not is_writable(path):
                    self._left_out[path.encode(errors="replace").decode()] = "its name is not valid UTF-8"
                    continue
                if self._is_excluded(path):
                    self._excluded.append(path)
                    continue
                try:
                    node = self._node(path, entry)
                except FileNotFoundError:
                    self._torn = True
                    continue
                except OSError as error:
                    if not place:
                        raise
                    self._left_out[path] = f"it cannot be read: {error.strerror}"
                    continue
                if node is None:
                    continue
                if node.kind is Kind.DIRECTORY and path.count("/") >= _MOST_LEVELS:
                    self._left_out[path] = f"it is nested deeper than {_MOST_LEVELS} directories"
                    continue
                self._nodes[path] = node
                if node.kind is Kind.DIRECTORY:
                    waiting.append(path)
        return Tree(self._nodes, self._left_out, self._torn, sorted(self._excluded))

    def _entries(self, place: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._directory / place) as entries:
                return list(entries)
        except FileNotFoundError:
            self._torn = self._torn or bool(place)
            return []
        except OSError as error:
            if not place:
                raise
            self._left_out[place] = f"it cannot be read: {error.strerror}"
            return []

    def _is_excluded(self, path: str) -> bool:
        name = path.rsplit("/", 1)[-1]
        return any(fnmatchcase(path if "/" in pattern else name, pattern) for pattern in self._exclude)

    def _node(self, path: str, entry: os.DirEntry[str]) -> Optional[TreeNode]:
        """Return the node of an entry, or None if it is left out. Raises FileNotFoundError if it has vanished."""
        found = entry.stat(follow_symlinks=False)
        mode, version = stat.S_IMODE(found.st_mode) & 0o777, FileVersion.of(found)
        if stat.S_ISREG(found.st_mode):
            if os.access(entry.path, os.R_OK):
                return TreeNode(Kind.FILE, mode, version)
            Path(entry.path).lstat()
            self._left_out[path] = "its permissions do not allow reading"
            return None
        if stat.S_ISDIR(found.st_mode):
            return TreeNode(Kind.DIRECTORY, mode, version)
        if not stat.S_ISLNK(found.st_mode):
            self._left_out[path] = "it is neither a file, a link nor a directory"
            return None
        try:
            text = str(Path(entry.path).readlink())
        except OSError as error:  # for example EINVAL if a file has replaced the link
            raise FileNotFoundError(error.errno, "the link has been replaced") from error
        target = inner_target(path, text, self._roots)
        if target is None:
            self._left_out[path] = f"it is a link that leads out of the directory, to {text}"
            return None
        return TreeNode(Kind.LINK, mode, version, target)


def inner_target(path: str, target: str, roots: Sequence[str] = ()) -> Optional[str]:
    """Return a link's target relative to the link's directory, or None if the target is not below the tree's root.

    ``path``: the link's path in the tree. ``roots``: absolute paths of the tree's root, for absolute targets. In the
    result, ``..`` is only at the beginning, so that no other link in the target can lead out of the tree.
    """
    if not target or "\0" in target or not is_writable(target) or len(target.encode()) > _LONGEST_LINK:
        return None
    place = posixpath.dirname(path)
    if target.startswith("/"):
        absolute = posixpath.normpath(target)
        below = [absolute[len(root) :].lstrip("/") for root in roots if f"{absolute}/".startswith(f"{root}/")]
        if not below:
            return None
        inner = below[0]
    else:
        inner = posixpath.normpath(posixpath.join(place, target))
        if inner == ".." or inner.startswith("../"):
            return None
    return posixpath.relpath(f"/{inner}", f"/{place}")


ALGORITHM = "crc32"
_HASHES = frozenset({"sha256", "sha512", "sha1", "md5", "blake2b"})
ALGORITHMS = _HASHES | {ALGORITHM}

Data = Union[bytes, bytearray, memoryview]


class UnknownChecksum(ValueError):  # noqa: N818 - describes what was found
    """A text is not a checksum, or its algorithm is unknown to this version of the runtime."""


class Checksum:
    """Incremental computation of a checksum. ``update`` with a large piece releases the GIL.

    Raises UnknownChecksum for an unknown algorithm.
    """

    def __init__(self, algorithm: str = ALGORITHM) -> None:
        self.algorithm = algorithm
        self.size = 0  # number of bytes so far
        self._crc = 0
        if algorithm in _HASHES:
            self._hash = hashlib.new(algorithm, usedforsecurity=False)
        elif algorithm != ALGORITHM:
            raise UnknownChecksum(f"{algorithm!r} is not a known checksum algorithm")

    def update(self, data: Data) -> None:
        if self.algorithm == ALGORITHM:
            self._crc = zlib.crc32(data, self._crc)
        else:
            self._hash.update(data)
        self.size += len(data)

    def append(self, following: Checksum) -> None:
        """Add the bytes of ``following``, which directly follow the bytes so far. Both checksums must be CRC-32.

        Source: zlib's ``crc32_combine``.
        """
        power, factor, bits = 1 << 31, 1 << 30, 8 * following.size  # the polynomials 1 and x; bits are in reverse order
        while bits:
            power = _multiplied(factor, power) if bits & 1 else power
            factor, bits = _multiplied(factor, factor), bits >> 1
        self._crc = _multiplied(power, self._crc) ^ following._crc
        self.size += following.size

    @property
    def text(self) -> str:
        """The checksum of all bytes so far, such as ``crc32:0a1b2c3d``."""
        value = f"{self._crc:08x}" if self.algorithm == ALGORITHM else self._hash.hexdigest()
        return f"{self.algorithm}:{value}"


_POLYNOMIAL = 0xEDB88320  # of CRC-32


def _multiplied(one: int, other: int) -> int:
    """Return the product of two polynomials modulo the polynomial of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        product ^= other if one >> bit & 1 else 0
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def algorithm_of(text: str) -> str:
    """Return the algorithm of a checksum, which is the text before its colon. Raises UnknownChecksum."""
    algorithm, separator, value = text.partition(":")
    if not separator or not value or algorithm not in ALGORITHMS:
        raise UnknownChecksum(f"{text!r} is not a checksum of a known algorithm")
    return algorithm


def file_checksum(path: Path, algorithm: str = ALGORITHM, *, cancelled: Optional[threading.Event] = None) -> str:
    """Return the checksum of a file. Raises OSError, UnknownChecksum, Cancelled."""
    checksum = Checksum(algorithm)
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum.update(buffer[:count])
            if cancelled is not None and cancelled.is_set():
                raise Cancelled(f"reading {path} was cancelled")
    return checksum.text


def has_checksum(path: Path, checksum: str, cancelled: threading.Event) -> bool:
    """Return whether a file has this checksum. Raises OSError, UnknownChecksum, Cancelled."""
    return file_checksum(path, algorithm_of(checksum), cancelled=cancelled) == checksum


class SummedFile:
    """A file for ``Storage.write`` that computes the checksum of the bytes that the storage reads.

    If a server fails, the storage reads the file again from the beginning. The checksum then also starts again.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = Checksum()  # of all bytes so far, from the beginning of the file

    def read(self, size: int = -1) -> bytes:
        at = self._file.tell()
        data = self._file.read(size)
        if at == 0:
            self.checksum = Checksum()
        if at != self.checksum.size:
            raise OSError("a file with a checksum can be read only from its beginning to its end")
        self.checksum.update(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


PART = 256 << 20  # bytes; the parts of a file are copied concurrently, because each stream uses only one DataNode


def parts_of(size: int) -> list[tuple[int, int]]:
    """Return the offset and size in bytes of each part of a file. A file of less than two parts has a single part."""
    most = PART if size >= 2 * PART else size
    return [(offset, min(most, size - offset)) for offset in range(0, size, most)]


LARGEST_NUMBER = 1 << 53  # limit for sizes, offsets and times in microseconds: JSON readers keep smaller integers exact
_OBJECT = re.compile(r"[0-9a-z][0-9a-z-]{0,99}")


class InvalidManifest(ValueError):  # noqa: N818 - describes what was found
    """A manifest does not describe a valid tree. ``str()`` is the reason."""


@attrs.frozen
class Entry:
    """A file, link or directory of a stored tree."""

    path: str  # below the tree's root, with slashes
    kind: Kind
    mode: int  # permission bits
    mtime_ns: int  # epoch
    size: int = 0  # size of a file in bytes
    checksum: str = ""  # checksum of a file; see ``Checksum``
    object: str = ""  # name of the stored object that contains the file; empty for an empty file
    offset: int = 0  # offset of the file in the object in bytes
    target: str = ""  # target of a link, relative to the link's directory


@attrs.frozen
class StoredTree:
    """The entries of one tree, and the stored objects that contain its files."""

    entries: list[Entry]  # sorted by path
    objects: dict[str, int]  # size of each object in bytes, by name

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(entry.size for entry in self.entries)

    def check(self) -> None:
        """Raise InvalidManifest if the entries are not a valid tree."""
        kinds: dict[str, Kind] = {}
        for entry in self.entries:
            if entry.path in kinds:
                raise InvalidManifest(f"it names {entry.path!r} twice")
            kinds[entry.path] = entry.kind
            _check_entry(entry, self.objects)
        for path in kinds:
            parent = posixpath.dirname(path)
            if parent and kinds.get(parent) is not Kind.DIRECTORY:
                raise InvalidManifest(f"{parent!r}, the parent of {path!r}, is not one of its directories")
        for name, size in self.objects.items():
            if not is_object_name(name):
                raise InvalidManifest(f"{name!r} is not the name of a stored object")
            _check_numbers(f"the object {name}", [size])
        self._check_places()
        if any(one.path > other.path for one, other in zip(self.entries, self.entries[1:])):
            raise InvalidManifest("its entries are not sorted by path")

    def _check_places(self) -> None:
        """Raise InvalidManifest if files overlap in an object. Files with the same offset and size are valid."""
        places = sorted({(entry.object, entry.offset, entry.size) for entry in self.entries if entry.size})
        for (name, offset, size), following in zip(places, places[1:]):
            if following[0] == name and following[1] < offset + size:
                raise InvalidManifest(f"two files overlap in the object {name}")


def is_object_name(name: str) -> bool:
    """Return whether a name is valid for a stored object."""
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
        raise InvalidManifest(f"the mode of {path!r} is not between 0 and 0o777")
    if entry.kind is Kind.LINK and inner_target(path, entry.target) != entry.target:
        raise InvalidManifest(f"the link {path!r} leads out of the directory")
    if entry.kind is not Kind.FILE and (entry.size or entry.object):
        raise InvalidManifest(f"{path!r} has content, but is not a file")
    if entry.kind is Kind.FILE:
        try:
            algorithm_of(entry.checksum)
        except UnknownChecksum as error:
            raise InvalidManifest(f"{path!r}: {error}") from error
        if (entry.size or entry.object) and entry.offset + entry.size > objects.get(entry.object, -1):
            raise InvalidManifest(f"{path!r} does not fit into its object {entry.object!r}")


def _check_numbers(what: str, numbers: Iterable[int]) -> None:
    if not all(0 <= number <= LARGEST_NUMBER for number in numbers):
        raise InvalidManifest(f"a number of {what} is negative or above 2**53")
