"""Find, archive and restore the files of a notebook's work.

Archives are checkpoints of the task. Files that do not fit into the size limit are listed in a note for the user.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Optional

NOT_KEPT = "NOT-KEPT.txt"  # lists for the user what is not kept, and what to do
MOST_FILES = 20_000
_LEFT_OUT = frozenset({".ipynb_checkpoints", "__pycache__", NOT_KEPT})
_TEMPORARY = ".~"  # prefix of Jupyter's temporary files, which replace other files


@dataclass(frozen=True)
class WorkFile:
    """A file, link or directory of the work and its state when it was listed."""

    path: str  # relative to the work's directory
    size: int  # bytes
    modified_ns: int
    mode: int  # including the file type
    target: str = ""  # target if it is a link

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True)
class WorkChoice:
    """The files that are kept, and the largest files, which are left out because of the limits."""

    kept: Sequence[WorkFile]
    left: Sequence[WorkFile]

    @classmethod
    def of(cls, found: Sequence[WorkFile], size_limit: int, most_files: int = MOST_FILES) -> WorkChoice:
        """Choose files from the smallest up, so that a large data file does not displace notebooks."""
        kept: list[WorkFile] = []
        left: list[WorkFile] = []
        size = 0
        for each in sorted(found, key=lambda file: (file.size, file.path)):
            if size + each.size <= size_limit and len(kept) < most_files:
                kept.append(each)
                size += each.size
            else:
                left.append(each)
        return cls(sorted(kept, key=lambda file: file.path), left[::-1])


def work_files_below(directory: Path, links: Collection[str] = ()) -> Iterator[WorkFile]:
    """Yield the contents of a directory, without our own ``links`` in it. Follows no links and skips vanished files."""
    for parent, directories, files in os.walk(directory):
        for name in [*directories, *files]:
            path = Path(parent, name)
            if name in _LEFT_OUT or name.startswith(_TEMPORARY):
                continue
            if name in links and path.parent == directory and path.is_symlink():
                continue
            try:
                about = path.lstat()
                target = os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""  # noqa: PTH115 - of any bytes
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode) or stat.S_ISDIR(about.st_mode):
                size = about.st_size if stat.S_ISREG(about.st_mode) else 0
                # a directory's time also changes if excluded files change
                modified = 0 if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns
                yield WorkFile(str(path.relative_to(directory)), size, modified, about.st_mode, target)
        directories[:] = [each for each in directories if each not in _LEFT_OUT]


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NAMED = 10  # files listed in a message


def count_files(files: Sequence[WorkFile]) -> str:
    """Return the number of files as text, such as "3 files"."""
    number = sum(1 for each in files if not each.is_directory)
    return f"{number} file{'' if number == 1 else 's'}"


def name_some(paths: Sequence[str]) -> str:
    """Return the first paths as text, and how many more there are."""
    shown = ", ".join(path.encode("utf-8", "replace").decode() for path in paths[:_NAMED])
    return shown + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")


def format_size(amount: float) -> str:
    """Return a number of bytes as text, such as "1.5 GiB"."""
    unit = 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


_PIECE = 1 << 20  # bytes


@dataclass(frozen=True)
class Packed:
    """Files that changed or were missing while an archive was written."""

    changing: Sequence[str]  # files that changed while they were copied
    unreadable: Sequence[str]  # files that the archive lacks, because they were unreadable or deleted


def pack_work(directory: Path, files: Sequence[WorkFile], archive: Path) -> Packed:
    """Write an archive of these files. Raises OSError."""
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
    """Open a file without following links, and without blocking on a pipe."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _copied(source: BinaryIO, file: WorkFile, into: IO[bytes]) -> bool:
    """Copy a file. Return whether its size and time are still as listed after the copy."""
    into.seek(0)
    into.truncate()
    with source:
        shutil.copyfileobj(source, into, _PIECE)
        after = os.fstat(source.fileno())
    return (after.st_size, after.st_mtime_ns) == (file.size, file.modified_ns)


def unpack_work(archive: Path, directory: Path) -> None:
    """Unpack one of our archives below a new directory and nowhere else. Raises OSError, TarError."""
    links = []
    with tarfile.open(archive) as tar:
        for info in tar:
            target = directory / info.name
            if Path(info.name).is_absolute() or ".." in Path(info.name).parts:
                raise tarfile.TarError(f"{archive.name} contains {info.name!r}, which leads out of the archive")
            if info.isdir():
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif info.issym():
                links.append((target, info.linkname))
            elif info.isreg():
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                content = tar.extractfile(info)
                assert content is not None  # noqa: S101 - a regular file has content
                with target.open("xb") as file:
                    shutil.copyfileobj(content, file, _PIECE)
                target.chmod(0o600 | (info.mode & 0o777))
                os.utime(target, (info.mtime, info.mtime))
    for target, linkname in links:  # last, so that no file is written through a link
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.symlink_to(linkname)


_ARCHIVE = re.compile(r"work-(\d{1,18})\.tar")
_KEPT = 2  # number of local archives: the newest one, and the one before, which may still be uploading
_NOTE = """\
These files are not kept: a notebook may have at most {most} in {files} files.
They are deleted with the notebook's container. Copy them to a lasting place (HDFS, an output of a job),
or open the notebook again with a higher limit: airflow tony notebook --keep 8GiB

{lines}
"""


class KeptWork:
    """The directory of a notebook's work and its archives."""

    def __init__(self, directory: Path, checkpoints: Path, size_limit: int, links: Sequence[str] = ()) -> None:
        """Keep at most ``size_limit`` bytes of ``directory``.

        ``links``: names of our own links in the directory, which are not kept.
        """
        self.directory = directory
        self._checkpoints = checkpoints
        self._size_limit = size_limit
        self._links = frozenset(links)
        self._seen: Optional[Sequence[WorkFile]] = None  # files at the last listing
        self._kept: Optional[Sequence[WorkFile]] = None  # files at the newest save
        self._left: Sequence[WorkFile] = ()
        self.number: Optional[int] = None  # number of the newest archive from this container, or None
        self.missing = ""  # message for users: files that this archive lacks; may be empty

    def restore(self, resume_from: Optional[str]) -> str:
        """Restore the newest kept work into the directory. Return a description for users.

        If the directory exists from an earlier start in this container, it stays as it is. Raises OSError, and
        tarfile.TarError for an invalid archive.
        """
        if self.directory.is_dir():
            return "unchanged since the last start in this container"
        partly = self.directory.with_name(self.directory.name + ".partly")
        shutil.rmtree(partly, ignore_errors=True)
        partly.mkdir(mode=0o700)
        if resume_from:
            unpack_work(Path(resume_from), partly)
        partly.rename(self.directory)
        self._seen = self._kept = self._found()
        return f"restored from the last save ({count_files(self._kept)})" if resume_from else "new and empty"

    def poll(self) -> bool:
        """List all files. Return whether a file has changed since the last listing."""
        before, self._seen = self._seen, self._found()
        return self._seen != before

    @property
    def is_kept(self) -> bool:
        """Whether the work is kept in the state of the last listing."""
        return self._seen == self._kept

    def keep(self) -> str:
        """Keep the current work. Return a description of the result for users. Raises OSError."""
        found = self._seen = self._found()
        choice = WorkChoice.of(found, self._size_limit)
        number = 1 + max([int(os.environ.get("TONY_RESUME_STEP") or 0), *(n for n, _ in self._archives())])
        archive = self._checkpoints / f"work-{number}.tar"
        partly = archive.with_name(f".{archive.name}.partly")
        try:
            packed = pack_work(self.directory, choice.kept, partly)
            partly.rename(archive)
        finally:
            partly.unlink(missing_ok=True)
        self._note(number, archive)
        self._kept = None if packed.changing else found
        self.number = number
        self._forget_old()
        self._tell_left(choice.left)
        said = f"{count_files(choice.kept)} kept, {format_size(sum(each.size for each in choice.kept))}"
        if packed.changing:
            said += f"; changed during the save, so they are kept again: {name_some(packed.changing)}"
        missing = []
        if packed.unreadable:
            missing.append(f"NOT kept, because they cannot be read: {name_some(packed.unreadable)}")
        if choice.left:
            missing.append(f"NOT kept, because of the size limit: {name_some([each.path for each in choice.left])}")
        self.missing = "; ".join(missing)
        return "; ".join([said, *missing])

    def _note(self, number: int, archive: Path) -> None:
        """Commit the archive as a checkpoint, so that it is copied to the store.

        On failure, delete the archive and raise OSError.
        """
        noted = False
        try:
            noted = importlib.import_module("tony_sdk").commit_checkpoint(number, archive.name)
        finally:
            if not noted:
                archive.unlink(missing_ok=True)
        if not noted:
            raise OSError(f"{archive.name} could not be committed: the disk may be full")

    def _archives(self) -> list[tuple[int, Path]]:
        """Return number and path of each local archive, oldest first."""
        found = [(match, path) for path in self._checkpoints.iterdir() if (match := _ARCHIVE.fullmatch(path.name))]
        return sorted((int(match[1]), path) for match, path in found)

    def _forget_old(self) -> None:
        for number, path in self._archives()[:-_KEPT]:
            path.with_name(f"step-{number}.tony.json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _found(self) -> Sequence[WorkFile]:
        return sorted(work_files_below(self.directory, self._links), key=lambda file: file.path)

    def _tell_left(self, left: Sequence[WorkFile]) -> None:
        """Write the note about files that are not kept, next to the notebooks where the user sees it."""
        note = self.directory / NOT_KEPT
        if not left:
            note.unlink(missing_ok=True)
        elif left != self._left:
            lines = [f"{format_size(each.size):>10}  {each.path}" for each in left]
            text = _NOTE.format(most=format_size(self._size_limit), files=MOST_FILES, lines="\n".join(lines))
            note.write_text(text, errors="surrogateescape")
        self._left = left
