"""The view that a format has of a checkpoint directory, and its findings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from posixpath import basename
from typing import Any, Callable, Optional, TypeVar, Union

import attrs

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint, Stamp
from tony_provider.runtime.checkpoint.content.readers import read_here
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.step_names import step_in
from tony_provider.runtime.text import is_writable

T = TypeVar("T")

QUIET = 3.0  # seconds without a change after which a file is taken for written to its end


@attrs.frozen
class Broken:
    """Finding: files that should be a checkpoint and are none, and will not become one."""

    paths: tuple[str, ...]  # below the directory
    reason: str


@attrs.frozen
class Pending:
    """Finding: files that may become a checkpoint, or belong to none: nobody else need look at them."""

    paths: tuple[str, ...]


Finding = Union[LocalCheckpoint, Broken, Pending]


Read = Callable[[str, Path], Any]
"""What one of ``content.readers`` says of a file, wherever it runs. Raises Unreadable, OSError, NotRead."""


class NotRead(OSError):  # noqa: N818 - says what was found
    """Nothing could be found out about any file: not the file is to blame. Another look may do."""


class ReadCache:
    """What was read of files that have not changed since."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._used: dict[Any, Any] = {}

    def recall(self, key: Any, read: Callable[[], T]) -> T:
        """What ``read`` returns, or the Unreadable that it raises; called anew only for a key that is not known."""
        if key not in self._used:
            if key not in self._known:
                try:
                    self._known[key] = read()
                except Unreadable as error:
                    self._known[key] = error
            self._used[key] = self._known[key]
        found = self._used[key]
        if isinstance(found, Unreadable):
            raise found
        return found  # type: ignore[no-any-return]

    def peek(self, key: Any) -> Any:
        """What is known for the key; None for nothing."""
        if key in self._known:
            self._used[key] = self._known[key]
        return self._used.get(key)

    def forget_unused(self) -> None:
        """Forget what nobody has asked for since the last time."""
        self._known, self._used = self._used, {}


@attrs.frozen
class View:
    """One look at a directory, as formats share it. ``files`` are those that no format has claimed yet."""

    directory: Path
    files: Mapping[str, Stamp]  # by path below the directory, with slashes; no links
    directories: frozenset[str]  # likewise
    now: float  # epoch seconds
    part: bool  # shards of other ranks may be elsewhere
    current_step: Optional[int]  # for what says no step itself; None: the program has reported none
    memory: ReadCache = attrs.field(factory=ReadCache)
    reading: Read = read_here

    def path(self, name: str) -> Path:
        return self.directory / name

    def without(self, claimed: Iterable[str]) -> View:
        gone = set(claimed)
        return attrs.evolve(self, files={name: stamp for name, stamp in self.files.items() if name not in gone})

    def below(self, directory: str) -> list[str]:
        """The files in a directory and in those below it, sorted."""
        prefix = f"{directory}/" if directory else ""
        return sorted(name for name in self.files if name.startswith(prefix))

    def is_quiet(self, names: Iterable[str]) -> bool:
        """Whether none of these files has changed for a while."""
        changed = max((self.files[name].mtime_ns for name in names if name in self.files), default=0)
        return changed <= (self.now - QUIET) * 1e9

    def is_shrinking(self, directory: str, names: Iterable[str]) -> bool:
        """Whether files of a checkpoint that is a whole directory have gone since ``is_whole``: it is being removed."""
        whole: Optional[frozenset[str]] = self.memory.peek(("whole", directory))
        return whole is not None and not whole <= frozenset(names)

    def is_whole(self, directory: str, names: Iterable[str]) -> None:
        """Keep in mind what was in a directory when it was complete."""
        self.memory.recall(("whole", directory), lambda: frozenset(names))

    def remember(self, what: str, names: Iterable[str], read: Callable[[], T]) -> T:
        """The result of ``read``, which is called anew only when one of the files has changed.

        Raises Unreadable, and FileNotFoundError when a file has gone meanwhile.
        """
        try:
            return self.memory.recall((what, tuple((name, self.files.get(name)) for name in names)), read)
        except (FileNotFoundError, NotRead):
            raise
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror or error}") from error

    def read(self, reader: str, name: str) -> Any:
        """What one of ``content.readers`` says of a file. Raises as ``remember``, and NotRead."""
        return self.remember(reader, (name,), lambda: self.reading(reader, self.path(name)))

    def read_part(self, reader: str, name: str) -> Any:
        """As ``read``, of one of several files of a checkpoint: what is wrong with it names it."""
        try:
            return self.read(reader, name)
        except Unreadable as error:
            raise Unreadable(f"{name}: {error}") from error

    def step(self, *labels: str) -> Optional[int]:
        """The step by the first of the labels that says one."""
        found = (step_in(basename(label)) for label in labels)
        return next((step for step in found if step is not None), None)

    def complete(
        self,
        step: Optional[int],
        kind: str,
        entry: str,
        names: Iterable[str],
        generated: Optional[Mapping[str, bytes]] = None,
    ) -> LocalCheckpoint:
        """Finding: a complete checkpoint.

        Of a save that says no step, it is the one that was reported when these files came; of the parts of several
        ranks none: each executor looks at another moment.
        """
        made = dict(generated or {})
        stamps = {name: self.files[name] for name in names if name not in made}
        files = tuple(sorted({*stamps, *made}))
        if step is not None or self.part:
            return LocalCheckpoint(step, kind, entry, files, made, stamps)
        reported = self.remember("step", sorted(stamps), lambda: self.current_step)
        return LocalCheckpoint(reported, kind, entry, files, made, stamps, reported=reported is not None)

    def not_complete(self, names: Iterable[str], reason: str) -> Finding:
        """Finding: these files are no checkpoint. Broken, unless they may still be being written."""
        paths = tuple(names)
        return Broken(paths, reason) if self.is_quiet(paths) else Pending(paths)


def look(
    directory: Path,
    *,
    now: float,
    part: bool = False,
    current_step: Optional[int] = None,
    memory: Optional[ReadCache] = None,
    reading: Read = read_here,
) -> View:
    """A view of a directory as it is now; one that is missing is an empty one.

    Raises OSError when it cannot be read.
    """
    files: dict[str, Stamp] = {}
    directories: set[str] = set()
    waiting = [""]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(directory / place) as entries:
                found = list(entries)
        except FileNotFoundError:
            continue
        except OSError:
            if not place:
                raise
            continue  # a directory that cannot be read holds nothing that could be copied
        for entry in found:
            name = f"{place}/{entry.name}" if place else entry.name
            if not is_writable(name):
                continue  # no manifest could name it
            try:
                if entry.is_dir(follow_symlinks=False):
                    directories.add(name)
                    waiting.append(name)
                elif entry.is_file(follow_symlinks=False):
                    files[name] = Stamp.of(entry.stat(follow_symlinks=False))
            except OSError:  # it has gone, or may not be looked at: it is no reason to find nothing else
                continue
    return View(directory, files, frozenset(directories), now, part, current_step, memory or ReadCache(), reading)
