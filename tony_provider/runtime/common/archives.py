"""Unpack an archive once for all containers that share it, in a separate process with limits."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import posixpath
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Callable, Optional, cast

import attrs

from tony_provider.runtime.common import helper_processes
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.files import locked, remove_tree
from tony_provider.runtime.common.text import one_line

_PROGRAM = "tony_provider.runtime.common.archives"
_MORE_SECONDS = 60.0  # added to UNPACK_SECONDS as the time limit for another container's lock
_POLL = 0.05  # seconds


def unpack_once(archive: Path, target: Path, cancelled: threading.Event) -> None:
    """Unpack the archive to ``target``, unless another container has done so. The target appears atomically.

    Blocks. Raises ArchiveError if the archive cannot be unpacked, or if another container holds
    the lock for more than UNPACK_SECONDS and one minute. Raises Cancelled, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with locked(target.with_name(f"{target.name}.lock"), UNPACK_SECONDS + _MORE_SECONDS):
            if not target.exists():
                _unpack(archive, target, cancelled)
    except TimeoutError as error:
        raise ArchiveError(f"cannot unpack {archive}: {error}") from error


def _unpack(archive: Path, target: Path, cancelled: threading.Event) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        if problem := _unpack_apart(archive, partial, cancelled):
            raise ArchiveError(f"cannot unpack {archive}: {problem}")
        partial.rename(target)
    finally:
        remove_tree(partial)


def _unpack_apart(archive: Path, directory: Path, cancelled: threading.Event) -> str:
    """Unpack in a separate process. Return the reason for a failure, or an empty string. Raises Cancelled, OSError."""
    with subprocess.Popen(
        helper_processes.helper_command(_PROGRAM, str(archive.absolute()), str(directory.absolute())),
        stdin=subprocess.PIPE,  # the process ends when this pipe is closed
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=helper_processes.helper_environment(),
    ) as process:
        try:
            code = _wait(process, cancelled)
        finally:
            process.kill()
        said = process.stdout.read(4 * LONGEST_PROBLEM).decode("utf-8", "replace") if process.stdout else ""
    if code is None:
        return f"unpacking took more than {UNPACK_SECONDS} s"
    if code == 0:
        return ""
    if code == 1 and said:
        return said
    return f"the unpacking process ended ({code}): it needed too much time or memory, or could not start"


def _wait(process: subprocess.Popen[bytes], cancelled: threading.Event) -> int | None:
    """Return the exit code, or None after UNPACK_SECONDS. Raises Cancelled."""
    deadline = time.monotonic() + UNPACK_SECONDS
    while (code := process.poll()) is None and time.monotonic() < deadline:
        if cancelled.wait(_POLL):
            raise Cancelled("unpacking the job's files was cancelled")
    return code


UNPACK_MEMORY = 512 << 20  # bytes of address space; xz needs 64 MiB, and a zip 1 KiB for each entry
UNPACK_SECONDS = 900  # time limit for one archive, such as an environment of several GB
LONGEST_PROBLEM = 2000  # characters; a longer error message is cut

# Errors that the readers raise for a truncated, damaged or encrypted archive.
READ_ERRORS = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    MemoryError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)

_MOST_BYTES = 16 << 30  # unpacked bytes that any archive may have
_MOST_TIMES = 100  # unpacked bytes allowed for each packed byte, in addition to _MOST_BYTES
_MOST_ENTRIES = 5_000_000
_LONGEST_HEADER = 128 << 10  # bytes; limit for the header of one tar entry (names, attributes, parts of a sparse file)
_MOST_COMMON = 100  # attributes in a tar's global header, which apply to all entries
_LONGEST_LINK = 4096  # bytes

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}


class ArchiveError(Exception):
    """Archive that cannot be unpacked; the message names the reason."""


def main() -> int:
    """Unpack the archive to the directory that the command line names."""
    archive, directory = sys.argv[1:]
    helper_processes.limit_memory(UNPACK_MEMORY)
    helper_processes.limit_time(UNPACK_SECONDS)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        unpack_archive(Path(archive), Path(directory))
    except (*READ_ERRORS, ArchiveError) as error:
        sys.stdout.write(one_line(str(error) or _name(error))[:LONGEST_PROBLEM])
        return 1
    return 0


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(2)


def _name(error: BaseException) -> str:
    return "it needs too much memory" if isinstance(error, MemoryError) else type(error).__name__


def unpack_archive(archive: Path, directory: Path) -> None:
    """Unpack a zip, or a plain or compressed tar. As in YARN, the content decides the type; links and permissions stay.

    A link may lead anywhere, because an environment links to its interpreter. Raises ArchiveError for a device, for an
    archive that exceeds the limits, and for an entry outside the directory, whether by its name or through a link.
    Raises one of READ_ERRORS if the archive is damaged.
    """
    left = _Room(archive.stat().st_size)
    directory = directory.resolve()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.infolist():
                left.take(member.file_size)
            for member in zipped.infolist():
                _extract_zipped(zipped, member, directory)
        return
    with _opened(archive) as data:
        measured = _Measured(data)
        with tarfile.TarFile(fileobj=cast("BinaryIO", measured)) as tar:
            while (entry := tar.next()) is not None:
                setattr(tar, "members", [])  # noqa: B010 - tarfile would keep all entries; typeshed lacks members
                _check_tar(tar, entry)
                left.take(entry.size if entry.isreg() else 0)
                measured.left = None
                _extract_tar(tar, entry, directory)
                measured.left = _LONGEST_HEADER


def _opened(archive: Path) -> BinaryIO:
    with archive.open("rb") as data:
        start = data.read(6)
    opener = next((each for magic, each in _OPENERS.items() if start.startswith(magic)), None)
    return cast("BinaryIO", opener(archive)) if opener else archive.open("rb")


class _Measured:
    """Reader of a tar that raises ArchiveError after ``left`` more bytes. If ``left`` is None, there is no limit."""

    def __init__(self, data: BinaryIO) -> None:
        self._data = data
        self.left: Optional[int] = _LONGEST_HEADER
        self.tell = data.tell
        self.seek = data.seek  # seeking does not store anything

    def read(self, size: int) -> bytes:
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                raise ArchiveError(f"an entry's header has more than {_LONGEST_HEADER} bytes")
        return self._data.read(size)


@attrs.define
class _Room:
    """Counter that limits unpacked bytes (16 GiB plus 100 times the packed size) and entries (five million)."""

    packed: int
    _bytes: int = 0
    _entries: int = 0

    def take(self, size: int) -> None:
        """Count an entry of ``size`` bytes. Raises ArchiveError if a limit is exceeded."""
        self._bytes += size
        self._entries += 1
        if self._bytes > _MOST_BYTES + _MOST_TIMES * self.packed:
            raise ArchiveError(f"its {self.packed} bytes would unpack to {self._bytes}, or more")
        if self._entries > _MOST_ENTRIES:
            raise ArchiveError(f"it has more than {_MOST_ENTRIES} entries")


def _inside(name: str) -> bool:
    """Return whether an entry's name stays in the directory."""
    path = posixpath.normpath(name)
    return not path.startswith(("/", "../")) and path != ".." and "\0" not in path


def _check_tar(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        raise ArchiveError(f"{one_line(entry.name)} is a device, or otherwise not a file, a directory or a link")
    if not _inside(entry.name) or (entry.islnk() and not _inside(entry.linkname)):
        raise ArchiveError(f"{one_line(entry.name)} leads out of the archive")
    if entry.size < 0:  # the next entry would start before this one
        raise ArchiveError(f"{one_line(entry.name)} has {entry.size} bytes")
    if len(tar.pax_headers) > _MOST_COMMON:
        raise ArchiveError(f"its global header has more than {_MOST_COMMON} attributes")
    end = 0
    for start, size in _parts(entry):
        if start < end or size < 0:
            raise ArchiveError(f"{one_line(entry.name)} is a sparse file whose parts overlap")
        end = start + size
    if end > entry.size:
        raise ArchiveError(f"{one_line(entry.name)} is a sparse file with more data than its {entry.size} bytes")


def _parts(entry: tarfile.TarInfo) -> list[tuple[int, int]]:
    """Return the start and length of each part of a sparse file, and an empty list for other files."""
    found: Optional[list[tuple[int, int]]] = getattr(entry, "sparse", None)
    return [(start, size) for start, size in found or () if size]  # the old format has four slots, some of them empty


def _extract_tar(tar: tarfile.TarFile, entry: tarfile.TarInfo, directory: Path) -> None:
    if entry.isdir() and posixpath.normpath(entry.name) == ".":  # the first entry of `tar -C folder .`
        return
    _make_way(directory, entry.name)
    if entry.islnk():
        _check_way(directory, entry.linkname)
        linked = directory / entry.linkname
        if linked.is_symlink():  # permissions and times would be set on the target of the link
            raise ArchiveError(f"{one_line(entry.name)} is a hard link to a symbolic link")
        if not linked.exists():  # tarfile would search the whole archive for it
            raise ArchiveError(f"{one_line(entry.name)} is a hard link to an entry that does not precede it")
    if hasattr(tarfile, "tar_filter"):  # Python 3.12, and later patch releases of earlier versions
        tar.extract(entry, directory, filter="tar")
    else:
        tar.extract(entry, directory)


def _make_way(directory: Path, name: str) -> None:
    _check_way(directory, name)
    path = directory / name
    if path.is_symlink():  # the entry would be written to the target of the link
        path.unlink()


def _check_way(directory: Path, name: str) -> None:
    way = os.path.realpath((directory / name).parent)
    if way != str(directory) and not way.startswith(f"{directory}/"):
        raise ArchiveError(f"{one_line(name)} leads out of the archive")


def _extract_zipped(zipped: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    if not _inside(member.filename) or ".." in member.filename.split("/"):  # zipfile would drop ".." from the path
        raise ArchiveError(f"{one_line(member.filename)} leads out of the archive")
    _make_way(directory, member.filename)
    mode = member.external_attr >> 16
    if mode & 0o170000 == 0o120000:  # the content of a symbolic link is the path of its target
        if member.file_size > _LONGEST_LINK:
            raise ArchiveError(f"{one_line(member.filename)} is a link without a target")
        destination = zipped.read(member).decode()
        link = directory / member.filename
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(destination)
        return
    path = Path(zipped.extract(member, directory))
    if mode & 0o777:
        path.chmod(mode & 0o777 | 0o200)


if __name__ == "__main__":
    sys.exit(main())
