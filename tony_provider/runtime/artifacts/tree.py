"""List a directory tree: its files, symbolic links and directories, with what identifies each version of a file."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.common.text import is_writable

_LONGEST_LINK = 4096  # bytes of a link's target, as Linux allows
_MOST_LEVELS = 200  # directories above an entry


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
    ctime_ns: int  # epoch; also changes when a program sets mtime_ns back

    @classmethod
    def of(cls, found: os.stat_result) -> FileVersion:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def without_ctime(self) -> FileVersion:
        """The version without ctime_ns, which also changes with a rename, a hard link or another mode."""
        return FileVersion(self.device, self.inode, self.size, self.mtime_ns, 0)


@attrs.frozen
class TreeNode:
    """A file, link or directory as the scan found it."""

    kind: Kind
    mode: int  # permission bits
    version: FileVersion
    target: str = ""  # of a link, relative to the link's directory


@attrs.frozen
class Tree:
    """The content of a directory at one moment."""

    nodes: Mapping[str, TreeNode]  # by path below the directory, with slashes
    left_out: Mapping[str, str] = attrs.field(factory=dict)  # path and reason of entries that a copy cannot hold
    torn: bool = False  # an entry vanished during the scan, so the nodes are of different moments
    excluded: Sequence[str] = ()  # paths of entries that match a pattern of ``exclude``, without entries below them

    @property
    def files(self) -> Mapping[str, TreeNode]:
        return {path: node for path, node in self.nodes.items() if node.kind is Kind.FILE}

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(node.version.size for node in self.nodes.values() if node.kind is Kind.FILE)


def scan(directory: Path, *, also_called: Sequence[str] = (), exclude: Sequence[str] = ()) -> Tree:
    """List everything below a directory. Symbolic links are not followed.

    ``also_called``: other absolute paths of the directory, as the program may use them in links. A link that points
    into the directory becomes relative; a link that leads out of it is left out. ``exclude``: glob patterns of paths
    to leave out with everything below them; a pattern without a slash applies to names at every level.

    Blocks. Returns an empty tree if the directory is missing. Raises OSError if it cannot be read.
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
                    self._left_out[path] = f"it lies below {_MOST_LEVELS} other directories"
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
            self._left_out[path] = "its permissions do not allow to read it"
            return None
        if stat.S_ISDIR(found.st_mode):
            return TreeNode(Kind.DIRECTORY, mode, version)
        if not stat.S_ISLNK(found.st_mode):
            self._left_out[path] = "it is neither a file, a link nor a directory"
            return None
        try:
            text = str(Path(entry.path).readlink())
        except OSError as error:  # EINVAL: a file has replaced the link
            raise FileNotFoundError(error.errno, "the link has been replaced") from error
        target = inner_target(path, text, self._roots)
        if target is None:
            self._left_out[path] = f"it is a link that leads out of the directory, to {text}"
            return None
        return TreeNode(Kind.LINK, mode, version, target)


def inner_target(path: str, target: str, roots: Sequence[str] = ()) -> Optional[str]:
    """Return a link's target relative to the link's directory, or None if the target is not below the tree's root.

    ``path``: of the link in the tree. ``roots``: absolute paths of the tree's root, which absolute targets may name.
    The result first leads up and then only down, so that links on its way cannot change its meaning.
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
