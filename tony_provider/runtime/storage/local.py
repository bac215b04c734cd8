"""Storage on this machine's disk: ``file://`` URIs and bare absolute paths."""

from __future__ import annotations

import errno
import io
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Optional

import attrs

from tony_provider.runtime.storage import errors, uris
from tony_provider.runtime.storage.base import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Body,
    FileStatus,
    Range,
    Source,
    Storage,
    temporary_name,
)

_ERRORS: dict[int, type[errors.StorageError]] = {
    errno.ENOENT: errors.StorageNotFound,
    errno.EEXIST: errors.StorageExists,
    errno.ENOTEMPTY: errors.StorageNotEmpty,
    errno.EISDIR: errors.StorageIsADirectory,
    errno.EACCES: errors.StoragePermissionDenied,
    errno.EPERM: errors.StoragePermissionDenied,
    errno.EROFS: errors.StoragePermissionDenied,
    errno.ENOSPC: errors.StorageNoSpace,
    errno.EDQUOT: errors.StorageNoSpace,
    errno.ENAMETOOLONG: errors.StorageInvalidPath,
    errno.EINVAL: errors.StorageInvalidPath,
    errno.ELOOP: errors.StorageInvalidPath,
    errno.ETIMEDOUT: errors.StorageTimeout,
    errno.ESTALE: errors.StorageUnreachable,
}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalStorage(Storage):
    """Storage on this machine's disk.

    Symbolic links are followed, except by ``remove``. Written files and their names survive a power failure. Operations
    have no deadlines, because the kernel supports none for files.

    A rename of a directory without ``overwrite`` is not fully exclusive: the rename may replace an empty directory that
    another process creates at the same time.
    """

    _confined_to: Optional[Path] = None

    @classmethod
    def confined_to(cls, directory: Path) -> LocalStorage:
        """Return a storage that rejects reads below ``directory`` if a symbolic link leads out of ``directory``.

        Use this storage for files of jobs, because a job can replace a file by a link to another user's file.
        """
        storage = cls()
        storage._confined_to = directory
        return storage

    def status(self, uri: str) -> FileStatus:
        path = local_path(uri)
        with _translated(uri, "get the status of", below_a_file=errors.StorageNotFound):
            return _status(path, path.stat())

    def version(self, uri: str) -> Optional[str]:
        path = local_path(uri)
        with _translated(uri, "get the status of", below_a_file=errors.StorageNotFound):
            found = path.stat()
        # A user can set the modification time (mtime), but not the change time (ctime).
        return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"

    def list(self, uri: str) -> list[FileStatus]:
        path = local_path(uri)
        with _translated(uri, "list"), os.scandir(path) as entries:
            found = [_entry_status(entry) for entry in entries]
        return sorted((status for status in found if status is not None), key=lambda status: status.name)

    def open_read(self, uri: str, *, offset: int = 0, length: Optional[int] = None) -> BinaryIO:
        path = local_path(uri)
        confined = self._confined_to is not None and path.is_relative_to(self._confined_to)
        with _translated(uri, "read", below_a_file=errors.StorageNotFound):
            file = open(path, "rb", opener=self._open_confined if confined else _open_file)  # noqa: SIM115
            file.seek(offset)
        return file if length is None else io.BufferedReader(Range(file, length))

    def _open_confined(self, path: str, flags: int) -> int:
        """Open a file, and then check its real path. A check before opening could miss a link that changes later."""
        assert self._confined_to is not None  # noqa: S101 - see open_read
        descriptor = _open_file(path, flags)
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        if place.is_relative_to(self._confined_to.resolve()):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.ELOOP, f"a link leads out of {self._confined_to}, to {place}")

    def write(
        self,
        uri: str,
        source: Source,
        *,
        overwrite: bool = False,
        permission: int = PRIVATE_FILE,
    ) -> int:
        target, body = local_path(uri), Body(source)
        with _translated(uri, "write"):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a directory")
            if not overwrite and os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "it exists already")
        self.make_directories(uris.parent(uri))
        temporary = target.parent / temporary_name()
        try:
            with _translated(uri, "write"):
                _write_new(temporary, body, permission)
                _move(temporary, target, overwrite)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        return body.given

    def rename_target_problem(self, uri: str) -> str:
        path = local_path(uri)
        try:
            if path.is_symlink():
                return "it is a symbolic link, which a rename would replace; name the directory that the link points to"
            if path.is_mount():
                return "it is a mount point, which cannot be replaced; name a directory in it"
        except OSError:  # the parent is inaccessible; the later creation of directories raises a better error
            return ""
        return ""

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        source_path, target_path = local_path(source), local_path(target)
        if source_path == target_path:
            raise errors.StorageExists(source, "rename", "source and target are the same")
        with _translated(source, "rename", f" (to {target})"):
            is_directory = source_path.is_dir()
            if source_path.is_symlink() or not is_directory:
                source_path.lstat()
                if target_path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, "the target is a directory")
            elif os.path.lexists(target_path) and not (overwrite and target_path.is_dir()):
                raise FileExistsError(errno.EEXIST, "the target exists already")
            _move(source_path, target_path, overwrite or is_directory)

    def make_directories(self, uri: str, *, permission: int = PRIVATE_DIRECTORY) -> None:
        path = local_path(uri)
        missing = []
        with _translated(uri, "make directory"):
            while not path.is_dir():
                if os.path.lexists(path) and not path.is_dir():  # another process may have just created the directory
                    raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file")
                missing.append(path)
                path = path.parent
            for directory in reversed(missing):
                _make_directory(directory, permission)

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        path = local_path(uri)
        if path == Path("/"):
            raise errors.StorageInvalidPath(uri, "remove", "this is the root of the store")
        with _translated(uri, "remove"):
            try:
                if path.is_symlink() or not path.is_dir():
                    path.unlink()
                elif recursive:
                    shutil.rmtree(path)
                else:
                    path.rmdir()
            except NotADirectoryError:
                return False
            except FileNotFoundError:
                # If the path still exists, another process has removed something below it, so continue.
                return os.path.lexists(path) and self.remove(uri, recursive=recursive)
        return True

    def close(self) -> None:
        """Do nothing: the store holds no resources."""


def local_path(uri: str) -> Path:
    """Return the path of a ``file://`` URI or a bare path. Raises StorageInvalidPath for any other URI."""
    parsed = uris.parse(uri)
    if parsed.scheme != "file" or parsed.authority not in ("", "localhost"):
        raise errors.StorageInvalidPath(uri, "use", "it is not a file of this machine")
    return Path(parsed.path)


def _status(path: Path, found: os.stat_result) -> FileStatus:
    is_directory = stat.S_ISDIR(found.st_mode)
    return FileStatus(
        path=f"file://{path}",
        size=0 if is_directory else found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        is_directory=is_directory,
        owner=_user_name(found.st_uid),
        permission=stat.S_IMODE(found.st_mode),
    )


def _entry_status(entry: os.DirEntry[str]) -> Optional[FileStatus]:
    """Return the status of a directory entry, or None if the entry vanished after it was listed."""
    for follow in (True, False):  # for a broken link, return the status of the link itself
        try:
            status = _status(Path(entry.path), entry.stat(follow_symlinks=follow))
            return attrs.evolve(status, is_link=True) if entry.is_symlink() else status
        except FileNotFoundError:
            continue
        except OSError as error:
            if not follow or error.errno != errno.ELOOP:
                raise
    return None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _open_file(path: str, flags: int) -> int:
    """Open a file like ``open``, but reject pipes and devices, because reading them may never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # ``open`` raises its own error for a directory
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a file but a pipe, a socket or a device")


def _write_new(path: Path, body: Body, permission: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        os.fchmod(descriptor, permission)
        for chunk in body.chunks():
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
        os.fsync(descriptor)


def _move(source: Path, target: Path, replace: bool) -> None:
    if replace:
        source.replace(target)
    else:
        _move_exclusively(source, target)
    _sync_directory(target.parent)
    if source.parent != target.parent:
        _sync_directory(source.parent)


def _move_exclusively(source: Path, target: Path) -> None:
    """Rename a file, but fail if the target exists. Uses a hard link, because ``rename`` would replace the target."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # Without hard links, create the target exclusively. Only the process that creates it then replaces it.
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))
        source.replace(target)
    else:
        source.unlink()


def _make_directory(path: Path, permission: int) -> None:
    try:
        path.mkdir(PRIVATE_DIRECTORY)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file") from None
    else:
        path.chmod(permission)


def _sync_directory(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # the user may write into the directory, but not open it; the rename has succeeded
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(
    uri: str,
    operation: str,
    detail: str = "",
    below_a_file: type[errors.StorageError] = errors.StorageNotADirectory,
) -> Iterator[None]:
    try:
        yield
    except NotADirectoryError as error:
        raise below_a_file(uri, operation, f"{error.strerror}{detail}") from error
    except RecursionError as error:  # shutil.rmtree raises it for very deep directories
        raise errors.StorageInvalidPath(uri, operation, f"it is nested too deeply{detail}") from error
    except OSError as error:
        kind = _ERRORS.get(error.errno or 0, errors.StorageError)
        raise kind(uri, operation, f"{error.strerror or error}{detail}") from error
