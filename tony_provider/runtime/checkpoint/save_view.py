"""The files of a checkpoint directory for the finders of saves, and entries that programs overwrite."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.artifacts.manifest import FileVersion
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


PATIENCE = 30.0  # seconds to wait for an entry that earlier saves have written, or longer if it came later
_LONGEST = 300.0  # seconds
_MOST_NAMES = 100
_NUMBERED = "#"  # common name of all entries with numbers
_BURST_NS = 10**9  # a second version that is so much newer is of another save
_DIGIT = re.compile(r"[0-9]")


class _Followers:
    """Entries that the program writes a while after another entry of the same save.

    A program that pauses within its saves may have a snapshot in the pause. So this class compares times: the pause
    within a save is shorter than the pause until the next save.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # modification time of the newest version, by name
        self._pauses: dict[tuple[str, str], float] = {}  # seconds, by an entry and its follower
        self._rare: set[tuple[str, str]] = set()  # pairs of which some save had only the first one

    def written(self, name: str, mtime_ns: int) -> None:
        """Note a new version of an entry. All entries with numbers have one name."""
        before = self._last.get(name)
        if before is None and len(self._last) == _MOST_NAMES:
            return
        if before is not None and mtime_ns - before > _BURST_NS:
            for other, when in self._last.items():
                if not before < when or when - before >= mtime_ns - when:
                    continue
                if (name, other) not in self._rare and (other, name) not in self._pauses:
                    pause = (when - before) / 1e9
                    self._pauses[name, other] = max(pause, self._pauses.get((name, other), 0.0))
        self._last[name] = mtime_ns

    def restored(self) -> None:
        """Forget the times, but not what they have shown."""
        self._last = {}

    def missing(self) -> dict[str, float]:
        """Return the followers that the present save lacks, and the longest pause before each so far."""
        return {each: self._pauses[first, each] for first, each in self._pairs() if each != _NUMBERED}

    def give_up(self) -> None:
        """Do not wait for the missing followers in future saves."""
        for pair in self._pairs():
            del self._pauses[pair]
            self._rare.add(pair)

    def _pairs(self) -> list[tuple[str, str]]:
        return [(first, each) for first, each in self._pauses if self._last.get(each, 0) < self._last.get(first, 0)]


class OverwrittenEntries:
    """Tracker that learns from the writes before each snapshot which entries belong to every save."""

    def __init__(self) -> None:
        self._followers = _Followers()
        self._usual: set[str] = set()
        self._is_mixed = False  # the save that showed them also had entries with numbers
        self._rare: set[str] = set()  # some save did not write them
        self._former: set[str] = set()  # an earlier save wrote them
        self._written: dict[str, int] = {}  # modification times in the present save, by path
        self._numbered_ns = 0  # modification time of the newest entry with a number
        self._is_begun = False
        self._waiting_since: Optional[float] = None

    @property
    def are_known(self) -> bool:
        """Whether a save has shown them."""
        return bool(self._usual)

    def written(self, path: str, mtime_ns: int, *, was_open: bool) -> None:
        """Note a new version of an entry. ``was_open``: the program had it open for writing at the last observation."""
        self._is_begun = True
        if not was_open:
            self._followers.written(_NUMBERED if _DIGIT.search(path) else path, mtime_ns)
        if _DIGIT.search(path):
            self._numbered_ns = max(mtime_ns, self._numbered_ns)
            return
        before = self._written.get(path)
        if before is not None and mtime_ns - before > _BURST_NS and not was_open:
            self._end()
        self._written[path] = mtime_ns

    def taken(self) -> None:
        """Note that a snapshot holds the present save."""
        if self._is_begun:
            self._end()
        self._forget()

    def restored(self) -> None:
        """Forget the present save. The next process writes the same entries."""
        self._followers.restored()
        self._forget()

    def _forget(self) -> None:
        self._written, self._numbered_ns, self._is_begun, self._waiting_since = {}, 0, False, None

    def lacking(self, now: float, removed: Iterable[str]) -> Optional[str]:
        """Return an entry that the present save still has to write, or None. Give up some time after the first call.

        ``removed``: entries of the last snapshot that do not exist now.
        """
        missing = {path for path in removed if not _DIGIT.search(path)}
        if self._is_begun:
            missing |= self._unwritten()
        late = self._followers.missing()
        patience = max(PATIENCE, *(min(_LONGEST, 2 * pause) for pause in late.values())) if late else PATIENCE
        missing |= late.keys()
        if not missing:
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < patience:
            return min(missing)
        self._followers.give_up()
        return None

    def _end(self) -> None:
        """End the present save.

        A file that was written only once, before those with numbers, may be a configuration. A file that was
        written after them probably names them.
        """
        self._rare |= self._unwritten()
        shown = {path for path, when in self._written.items() if path in self._former or when >= self._numbered_ns}
        self._usual, self._is_mixed = shown - self._rare, self._numbered_ns > 0
        self._former |= self._written.keys()
        self._written, self._numbered_ns = {}, 0

    def _unwritten(self) -> set[str]:
        """Return the usual entries that the present save has not written.

        Files that came alone at the start, such as a configuration, do not belong to the saves that follow.
        """
        is_same_kind = self._is_mixed or (not self._numbered_ns and not self._usual.isdisjoint(self._written))
        return self._usual - self._written.keys() if is_same_kind else set()
