"""The files of a checkpoint directory for the finders of saves, and names of checkpoints with the steps in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.artifacts.tree import FileVersion
from tony_provider.runtime.checkpoint.content.zips import HIGHEST_COUNT, NotRead, Unreadable

# Labels before a number that is a step. The first pattern that matches decides.
MANIFEST_SUFFIX = ".tony.json"  # of manifests that programs write
_STEPS = r"(?:global[-_]?)?(?:step|iter|iteration)s?"
_SAVES = r"(?:epoch|ep|e|ckpt|chkpt|checkpoint|backup|save|snapshot|cp)s?"
_LABELLED = re.compile(rf"(?:^|[^a-z])(?:{_STEPS})[-_=.]?([0-9]+)(?![0-9])")
_NUMBER = re.compile(rf"(?:^|[^a-z0-9]|(?:^|[^a-z])(?:{_SAVES}|model|weights|state|it|n|s))([0-9]+)(?=$|[^0-9a-z])")
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]+(?![0-9.])")
# Numbers that are not a step.
_OTHER = re.compile(
    r"(?:^|[^a-z])(?:(?:mp[-_]?)?rank|part|shard|of|version|v|seed|gpu|worker|fold|run|trial|process|lr|loss|acc)"
    r"[-_=]?[0-9]+(?:\.[0-9]+)?"
)
# Names of temporary files and directories, also of TensorFlow's and Keras's.
_TEMPORARY = re.compile(r"[._]*te?mp[-_.].*|.*[-_.](?:te?mp|part|partial|incomplete)[0-9]*|workertemp_.*")
_BEST = re.compile(r"(?:^|[^a-z])best(?:$|[^a-z])")
_CHECKPOINT = re.compile(rf"(?:.*(?:^|[^a-z])(?:{_STEPS}|{_SAVES})[-_=.]?)?[0-9]+(?:\.ckpt|\.pt|\.pth)?")


def step_in(name: str) -> Optional[int]:
    """Return the step in a file's name without its suffix, or in a directory's name, or None.

    Examples: ``ckpt-20``, ``epoch=3-step=120``, ``0005``. A number that is labelled as a step takes precedence, and a
    later number over an earlier number. The 50 of ``resnet50`` and the 0.12 of a loss are not steps.
    """
    step = labelled_step(name)
    if step is not None:
        return step
    without = _OTHER.sub("-", name.lower())
    step = _last(_NUMBER.findall(_DECIMAL.sub("-", without)))
    return _last(_NUMBER.findall(without)) if step is None else step


def labelled_step(name: str) -> Optional[int]:
    """Return the number that the name labels as a step or an iteration, as in ``step-120``, or None."""
    return _last(_LABELLED.findall(name.lower()))


def _last(texts: list[str]) -> Optional[int]:
    numbers = [int(text) for text in texts if len(text) < 20 and int(text) < HIGHEST_COUNT]
    return numbers[-1] if numbers else None


def names_a_checkpoint(directory: str) -> bool:
    """Return whether a directory of this name is a single checkpoint, not a parent of several: ``step_500``, ``20``."""
    return _CHECKPOINT.fullmatch(directory.lower()) is not None


def is_best(entry: str) -> bool:
    """Return whether a program keeps a checkpoint of this name for its quality, such as ``model_best.pth.tar``."""
    return _BEST.search(entry.lower()) is not None


def is_temporary(name: str) -> bool:
    """Return whether a file or directory of this name is temporary."""
    return _TEMPORARY.fullmatch(name.lower()) is not None


Read = Callable[[str, Path], Any]
"""Reads a file by one of ``content.readers``, in this process or another. Raises Unreadable, OSError."""


@attrs.frozen
class Save:
    """A file, or several files together, of a known format."""

    format: str  # a CheckpointFormat; empty if no framework loads it by itself
    entry: str  # path that user code loads: a file, a directory ("." for the whole one) or TensorFlow's prefix
    files: tuple[str, ...]  # existing files
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
        """Return a reader's result for a file. Raises Unreadable, FileNotFoundError, OSError."""
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
