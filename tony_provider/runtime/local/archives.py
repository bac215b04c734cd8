"""Unpacked archives, shared between containers of one machine. All functions and methods block."""

from __future__ import annotations

import hashlib
import lzma
import posixpath
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Callable

import attrs

from tony_provider.runtime.application import LocalAccess, LocalizedResource
from tony_provider.runtime.file_lock import locked
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.storage import local_path
from tony_provider.runtime.text import one_line

# What an archive that is cut short, damaged or encrypted makes of the readers.
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    MemoryError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)

_MOST_BYTES = 16 << 30  # that anything may unpack to
_MOST_TIMES = 100  # its own size, beyond that
_MOST_ENTRIES = 5_000_000
_LONGEST_LINK = 4096  # bytes

UNPACK_SECONDS = 900.0  # that another container may take to unpack the same archive, an environment of several GB


class ArchiveError(Exception):
    """An archive cannot be unpacked; the message names it."""


@attrs.frozen
class ArchiveCache:
    """Unpacks archives, each once.

    Those of one application go with it; others, such as the runtime, stay for the next.
    """

    shared: Path
    private: Path
    owns: Callable[[LocalizedResource], bool]  # whether it is the application's own

    def unpacked(self, resource: LocalizedResource) -> Path:
        """The directory with what is in the archive; not to be written to.

        Raises ArchiveError, also when another container takes more than UNPACK_SECONDS to unpack the same.
        """
        root = self.private if self.owns(resource) else self.shared
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = name_of(resource)
        target = root / key
        try:
            with locked(root / f"{key}.lock", UNPACK_SECONDS):
                if not target.exists():
                    _unpack_aside(local_path(resource.uri), target)
        except TimeoutError as error:
            raise ArchiveError(f"cannot unpack {resource.uri}: {error}") from error
        return target


def name_of(resource: LocalizedResource) -> str:
    """What the directory with an archive's content is called: a file that has changed has another."""
    return hashlib.sha256(f"{resource.uri} {resource.size} {resource.modified_ms}".encode()).hexdigest()[:32]


def shared_cache(access: LocalAccess) -> Path:
    """The directory where the local cluster keeps unpacked archives for all its applications."""
    return Path(access.root).parent / "unpacked"


def _unpack_aside(archive: Path, target: Path) -> None:
    """The target appears whole or not at all."""
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        unpack(archive, partial)
        partial.rename(target)
    except (*_UNREADABLE, ArchiveError) as error:
        raise ArchiveError(f"cannot unpack {archive}: {error}") from error
    finally:
        remove_tree(partial)


def unpack(archive: Path, directory: Path) -> None:
    """Unpack zip and tar, plain or compressed, as YARN does: by what is inside, links and permissions kept.

    A link may lead anywhere, as those of an environment to its interpreter do, but nothing is unpacked by way of one
    that leads out of the directory. Raises ArchiveError for that, for names that lead out, for devices, and for what is
    larger than any environment.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            left = _Room(archive.stat().st_size)
            for member in zipped.infolist():
                left.take(member.file_size)
            for member in zipped.infolist():
                _extract_zipped(zipped, member, directory)
        return
    with tarfile.open(archive) as tar:
        left = _Room(archive.stat().st_size)
        for entry in tar:
            left.take(entry.size if entry.isreg() else 0)
            _check_tar(entry)
            _extract_tar(tar, entry, directory)


@attrs.define
class _Room:
    """What an archive of so many bytes may unpack to: a hundred times that, or 16 GiB, and so many entries."""

    packed: int
    _bytes: int = 0
    _entries: int = 0

    def take(self, size: int) -> None:
        """Raises ArchiveError where there is no room for so many bytes more."""
        self._bytes += size
        self._entries += 1
        if self._bytes > _MOST_BYTES + _MOST_TIMES * self.packed:
            raise ArchiveError(f"its {self.packed} bytes would unpack to {self._bytes}, or more")
        if self._entries > _MOST_ENTRIES:
            raise ArchiveError(f"it has more than {_MOST_ENTRIES} entries")


def _inside(name: str) -> bool:
    """Whether an entry's name stays in the directory."""
    path = posixpath.normpath(name)
    return not path.startswith(("/", "../")) and path != ".." and "\0" not in path


def _check_tar(entry: tarfile.TarInfo) -> None:
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        raise ArchiveError(f"{one_line(entry.name)} is a device, or something else than files, directories and links")
    if not _inside(entry.name) or (entry.islnk() and not _inside(entry.linkname)):
        raise ArchiveError(f"{one_line(entry.name)} leads out of it")


def _extract_tar(tar: tarfile.TarFile, entry: tarfile.TarInfo, directory: Path) -> None:
    _make_way(directory, entry.name)
    if entry.islnk():
        _check_way(directory, entry.linkname)
        if (directory / entry.linkname).is_symlink():  # rights and times would go to what that leads to
            raise ArchiveError(f"{one_line(entry.name)} is a hard link to a link")
    if hasattr(tarfile, "tar_filter"):  # from 3.12, and in the later releases of those before
        tar.extract(entry, directory, filter="tar")
    else:
        tar.extract(entry, directory)


def _make_way(directory: Path, name: str) -> None:
    _check_way(directory, name)
    path = directory / name
    if path.is_symlink():  # it would be written to what that leads to
        path.unlink()


def _check_way(directory: Path, name: str) -> None:
    way = (directory / name).parent.resolve()
    if way != directory.resolve() and directory.resolve() not in way.parents:
        raise ArchiveError(f"{one_line(name)} leads out of it")


def _extract_zipped(zipped: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    if not _inside(member.filename) or ".." in member.filename.split("/"):  # which zipfile leaves out of the path
        raise ArchiveError(f"{one_line(member.filename)} leads out of it")
    _make_way(directory, member.filename)
    mode = member.external_attr >> 16
    if mode & 0o170000 == 0o120000:  # a symbolic link, its target as the content
        if member.file_size > _LONGEST_LINK:
            raise ArchiveError(f"{one_line(member.filename)} is a link to nowhere")
        destination = zipped.read(member).decode()
        link = directory / member.filename
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(destination)
        return
    path = Path(zipped.extract(member, directory))
    if mode & 0o777:
        path.chmod(mode & 0o777 | 0o200)
