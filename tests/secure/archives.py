"""Archives that unpack to more than a disk holds, or that lead out of where they are unpacked."""

from __future__ import annotations

import copy
import gzip
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

_PIECE = 128 << 20  # bytes
_PIECES = 200  # 25 GiB


def zip_bomb(path: Path, outside: Path) -> None:
    """One file of zeros, which all entries have."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(_PIECE))
        [first] = archive.filelist
        for number in range(1, _PIECES):
            entry = copy.copy(first)
            entry.filename = f"zeros-{number}"
            archive.filelist.append(entry)


def tar_bomb(path: Path, outside: Path) -> None:
    """One file of zeros, of members of gzip that are all alike."""
    entry = tarfile.TarInfo("zeros")
    entry.size = _PIECE * _PIECES
    zeros = gzip.compress(bytes(_PIECE))
    with path.open("wb") as file:
        file.write(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT)))
        for _ in range(_PIECES):
            file.write(zeros)


def zip_out(path: Path, outside: Path) -> None:
    """A link that leads out, and a file behind it."""
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("way")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, str(outside))
        archive.writestr("way/file", b"not here")


def tar_out(path: Path, outside: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("way/file"))


INSIDE = ("zeros*", "way")  # patterns of the names of what is in them
# By the names of the files: a way to make each at a path, and what it leads out to.
HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "bomb.zip": zip_bomb,
    "bomb.tar.gz": tar_bomb,
    "out.zip": zip_out,
    "out.tar.gz": tar_out,
}
