"""Unpacked archives, shared between containers of one machine. All functions and methods block."""

from __future__ import annotations

import hashlib
import lzma
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

# What an archive that is cut short, damaged or encrypted makes of the readers.
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)

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
        key = hashlib.sha256(f"{resource.uri} {resource.size} {resource.modified_ms}".encode()).hexdigest()[:32]
        target = root / key
        try:
            with locked(root / f"{key}.lock", UNPACK_SECONDS):
                if not target.exists():
                    _unpack_aside(local_path(resource.uri), target)
        except TimeoutError as error:
            raise ArchiveError(f"cannot unpack {resource.uri}: {error}") from error
        return target


def shared_cache(access: LocalAccess) -> Path:
    """The directory where the local cluster keeps unpacked archives for all its applications."""
    return Path(access.root).parent / "unpacked"


def _unpack_aside(archive: Path, target: Path) -> None:
    """The target appears whole or not at all."""
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        unpack(archive, partial)
        partial.rename(target)
    except _UNREADABLE as error:
        raise ArchiveError(f"cannot unpack {archive}: {error}") from error
    finally:
        remove_tree(partial)


def unpack(archive: Path, directory: Path) -> None:
    """Unpack zip and tar, plain or compressed, as YARN does: by what is inside, links and permissions kept."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for member in zipped.infolist():
                _extract_zipped(zipped, member, directory)
        return
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "tar_filter"):  # from 3.12, and in the later releases of those before
            tar.extractall(directory, filter="tar")  # refuses what leads out of the directory
        else:
            tar.extractall(directory)  # noqa: S202 - the archive is the job's own, run as its user


def _extract_zipped(zipped: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    path = Path(zipped.extract(member, directory))
    mode = member.external_attr >> 16
    if mode & 0o170000 == 0o120000:  # a symbolic link, its target as the content
        destination = zipped.read(member).decode()
        path.unlink()
        path.symlink_to(destination)
    elif mode & 0o777:
        path.chmod(mode & 0o777 | 0o200)
