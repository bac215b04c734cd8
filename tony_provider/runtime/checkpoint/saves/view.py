"""Classes for the finders of all formats: a save, and the view of a directory in which they find it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.artifacts.tree import FileVersion
from tony_provider.runtime.checkpoint.content.unreadable import NotRead, Unreadable
from tony_provider.runtime.checkpoint.save_names import is_best, labelled_step

Read = Callable[[str, Path], Any]
"""Reads a file by one of ``content.readers``, in this process or another. Raises Unreadable, OSError."""


@attrs.frozen
class Save:
    """A file, or several files together, of a known format."""

    format: str  # a CheckpointFormat; empty if no framework loads it by itself
    entry: str  # what user code loads: a file, a directory ("." for the whole one) or TensorFlow's prefix
    files: tuple[str, ...]  # that exist
    step: Optional[int] = None  # from the content, or from a name in which the format has it
    problem: str = ""  # the reason why it is not complete
    proven: bool = False  # its content shows that it is complete
    needs: Mapping[str, int] = attrs.field(factory=dict)  # other files of the save, and their minimum sizes in bytes
    is_manifest: bool = False
    preference: int = 0  # the lowest is what a program resumes from
    content_step: Optional[int] = None  # from the content

    @property
    def is_best(self) -> bool:
        """Whether a program keeps this save for its quality, not to resume from."""
        return is_best(self.entry)


class ReadCache:
    """Results of readers, kept while the files do not change."""

    def __init__(self, reading: Read) -> None:
        self._reading = reading
        self._known: dict[tuple[str, str], tuple[FileVersion, Any]] = {}

    def keep(self, files: Collection[str]) -> None:
        """Forget the results of all other files."""
        self._known = {key: value for key, value in self._known.items() if key[1] in files}

    def read(self, reader: str, directory: Path, path: str, version: FileVersion) -> Any:
        """Return the reader's result. Raises Unreadable, FileNotFoundError, OSError."""
        found = self._known.get((reader, path))
        if found is None or found[0] != version.without_ctime:
            try:
                found = version.without_ctime, self._reading(reader, directory / path)
            except (FileNotFoundError, NotRead):
                raise
            except (Unreadable, OSError) as error:  # a damaged file may also lead to an impossible offset
                found = version.without_ctime, Unreadable(str(error))
            self._known[reader, path] = found
        if isinstance(found[1], Unreadable):
            raise found[1]
        return found[1]


@attrs.frozen
class SaveView:
    """The files of a directory at one moment."""

    directory: Path
    files: Mapping[str, FileVersion]  # by path below the directory
    directories: frozenset[str]
    world_size: int  # processes, each of which may write its part of a save
    cache: ReadCache
    foreign: Collection[str] = ()  # paths that a restore has brought from other tasks

    def read(self, reader: str, path: str) -> Any:
        """Return what a reader says about a file. Raises Unreadable, FileNotFoundError, OSError."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.cache.read(reader, self.directory, path, self.files[path])

    def begins(self, path: str, size: int = 16) -> bytes:
        """Return the first bytes of a file. Raises FileNotFoundError, OSError."""
        with (self.directory / path).open("rb") as file:
            return file.read(size)

    def below(self, directory: str) -> tuple[str, ...]:
        """Return the files below a directory ("" for all), sorted."""
        prefix = f"{directory}/" if directory else ""
        return tuple(sorted(path for path in self.files if path.startswith(prefix)))

    def newest_time(self, paths: Iterable[str]) -> int:
        """Return the latest modification time of files, in nanoseconds since the epoch."""
        return max((self.files[path].mtime_ns for path in paths if path in self.files), default=0)


def join(*parts: str) -> str:
    """Join the parts of a path; empty parts are left out."""
    return "/".join(filter(None, parts))


def beside(path: str, name: str) -> str:
    """Return the path of a file in the same directory."""
    return join(dirname(path), name)


def step_of(path: str) -> Optional[int]:
    """Return the step that a name labels, as in ``step-120`` or ``iter_0100``, or None."""
    return labelled_step(basename(path))
