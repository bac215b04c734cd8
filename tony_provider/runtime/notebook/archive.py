"""An archive of a notebook's work: how it is made of files that people may write meanwhile, and put back."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from .work_files import WorkFile

_PIECE = 1 << 20  # bytes


@dataclass(frozen=True)
class Packed:
    """What is to be said of an archive."""

    changing: Sequence[str]  # files that changed while they were copied
    unreadable: Sequence[str]  # files that are not in it: nobody may read them, or they have vanished


def pack(directory: Path, files: Sequence[WorkFile], archive: Path) -> Packed:
    """Write an archive of these. Raises OSError."""
    changing, unreadable = [], []
    with (
        tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar,
        tempfile.TemporaryFile(dir=archive.parent) as copy,
    ):
        for each in files:
            info = tarfile.TarInfo(each.path)
            info.mtime, info.mode = each.modified_ns // 10**9, stat.S_IMODE(each.mode)
            if each.is_directory:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif each.target:
                info.type, info.linkname = tarfile.SYMTYPE, each.target
                tar.addfile(info)
            else:
                try:
                    source = _open(directory / each.path)
                except OSError:
                    unreadable.append(each.path)
                    continue
                if not _copied(source, each, copy):
                    changing.append(each.path)
                info.size = copy.seek(0, os.SEEK_END)
                copy.seek(0)
                tar.addfile(info, copy)
    return Packed(changing, unreadable)


def _open(path: Path) -> BinaryIO:
    """No link, and no pipe that somebody would have to write into."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _copied(source: BinaryIO, file: WorkFile, into: IO[bytes]) -> bool:
    """Whether it was, and after that still is, what was found."""
    into.seek(0)
    into.truncate()
    with source:
        shutil.copyfileobj(source, into, _PIECE)
        after = os.fstat(source.fileno())
    return (after.st_size, after.st_mtime_ns) == (file.size, file.modified_ns)


def unpack(archive: Path, directory: Path) -> None:
    """Put what is in an archive of ours into a new directory, and nothing outside of it. Raises OSError, TarError."""
    links = []
    with tarfile.open(archive) as tar:
        for info in tar:
            target = directory / info.name
            if Path(info.name).is_absolute() or ".." in Path(info.name).parts:
                raise tarfile.TarError(f"{archive.name} holds {info.name!r}, which is not below a directory")
            if info.isdir():
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif info.issym():
                links.append((target, info.linkname))
            elif info.isreg():
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                content = tar.extractfile(info)
                assert content is not None  # noqa: S101 - a regular file has some
                with target.open("xb") as file:
                    shutil.copyfileobj(content, file, _PIECE)
                target.chmod(0o600 | (info.mode & 0o777))
                os.utime(target, (info.mtime, info.mtime))
    for target, linkname in links:  # at last: nothing is written through one
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.symlink_to(linkname)
