"""Names of saves and steps, cached content of checkpoint files, and tracking of files that programs overwrite."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Callable, Optional

import attrs

from tony_provider.runtime.artifacts.manifest import FileVersion
from tony_provider.runtime.checkpoint.content.zips import HIGHEST_COUNT, NotRead, Unreadable

MANIFEST_SUFFIX = ".tony.json"  # suffix of manifests that programs write
# Labels of a number that is a step. The first matching pattern applies.
_STEPS = r"(?:global[-_]?)?(?:step|iter|iteration)s?"
_SAVES = r"(?:epoch|ep|e|ckpt|chkpt|checkpoint|backup|save|snapshot|cp)s?"
_LABELLED = re.compile(rf"(?:^|[^a-z])(?:{_STEPS})[-_=.]?([0-9]+)(?![0-9])")
_NUMBER = re.compile(rf"(?:^|[^a-z0-9]|(?:^|[^a-z])(?:{_SAVES}|model|weights|state|it|n|s))([0-9]+)(?=$|[^0-9a-z])")
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]+(?![0-9.])")
# Numbers whose label shows that they are not a step.
_OTHER = re.compile(
    r"(?:^|[^a-z])(?:(?:mp[-_]?)?rank|part|shard|of|version|v|seed|gpu|worker|fold|run|trial|process|lr|loss|acc)"
    r"[-_=]?[0-9]+(?:\.[0-9]+)?"
)
# Names of temporary files and directories, including those of TensorFlow and Keras.
_TEMPORARY = re.compile(r"[._]*te?mp[-_.].*|.*[-_.](?:te?mp|part|partial|incomplete)[0-9]*|workertemp_.*")
_BEST = re.compile(r"(?:^|[^a-z])best(?:$|[^a-z])")
_CHECKPOINT = re.compile(rf"(?:.*(?:^|[^a-z])(?:{_STEPS}|{_SAVES})[-_=.]?)?[0-9]+(?:\.ckpt|\.pt|\.pth)?")


def step_in(name: str) -> Optional[int]:
    """Return the step in the name of a directory, or in a file name without suffix. Return None if there is no step.

    Examples: ``ckpt-20``, ``epoch=3-step=120``, ``0005``. A number with the label ``step`` or ``iter`` takes
    precedence. Without one, the last number is the step. The 50 of ``resnet50`` and the 0.12 of a loss are not steps.
    """
    step = labelled_step(name)
    if step is not None:
        return step
    without = _OTHER.sub("-", name.lower())
    step = _last(_NUMBER.findall(_DECIMAL.sub("-", without)))
    return _last(_NUMBER.findall(without)) if step is None else step


def labelled_step(name: str) -> Optional[int]:
    """Return the number with the label ``step`` or ``iter`` in a name, such as ``step-120``, or None."""
    return _last(_LABELLED.findall(name.lower()))


def _last(texts: list[str]) -> Optional[int]:
    numbers = [int(text) for text in texts if len(text) < 20 and int(text) < HIGHEST_COUNT]
    return numbers[-1] if numbers else None


def names_a_checkpoint(directory: str) -> bool:
    """Return whether a directory has the name of a single checkpoint, such as ``step_500`` or ``20``."""
    return _CHECKPOINT.fullmatch(directory.lower()) is not None


def is_best(entry: str) -> bool:
    """Return whether a name indicates the best checkpoint so far, such as ``model_best.pth.tar``."""
    return _BEST.search(entry.lower()) is not None


def is_temporary(name: str) -> bool:
    """Return whether a name indicates a temporary file or directory."""
    return _TEMPORARY.fullmatch(name.lower()) is not None


Read = Callable[[str, Path], Any]
"""Reads a file by one of ``content.readers``, in this process or another. Raises Unreadable, OSError."""


@attrs.frozen
class Save:
    """One or several files in a known format, which a program wrote for one checkpoint."""

    format: str  # a CheckpointFormat; empty if no framework can load the save
    entry: str  # path that programs load: a file, a directory (".": the checkpoint directory) or a TensorFlow prefix
    files: tuple[str, ...]  # paths of the save's existing files
    step: Optional[int] = None  # step in the content or in the name; None if there is none
    problem: str = ""  # reason why the save is incomplete; empty if no problem was found
    proven: bool = False  # whether the content proves that the save is complete
    needs: Mapping[str, int] = attrs.field(factory=dict)  # minimum sizes in bytes of required files, by path
    is_manifest: bool = False
    preference: int = 0  # rank of the kind of save; a program resumes from the kind with the lowest rank
    content_step: Optional[int] = None  # step in the content; None if there is none

    @property
    def is_best(self) -> bool:
        """Whether this is the program's best save so far, from which programs usually do not resume."""
        return is_best(self.entry)


class ReadCache:
    """Cache for the results of reading files. The cached results of a file are used until the file changes."""

    def __init__(self, reading: Read) -> None:
        self._reading = reading
        self._known: dict[tuple[str, str], tuple[FileVersion, Any]] = {}

    def keep(self, files: Collection[str]) -> None:
        """Remove the results of all files except these."""
        self._known = {key: value for key, value in self._known.items() if key[1] in files}

    def read(self, reader: str, directory: Path, path: str, version: FileVersion) -> Any:
        """Return the result of a reader, from the cache if possible. Raises Unreadable, FileNotFoundError, OSError."""
        found = self._known.get((reader, path))
        if found is None or found[0] != version.without_ctime:
            try:
                found = version.without_ctime, self._reading(reader, directory / path)
            except (FileNotFoundError, NotRead):
                raise
            except (Unreadable, OSError) as error:  # an invalid offset in a damaged file may cause an OSError
                found = version.without_ctime, Unreadable(str(error))
            self._known[reader, path] = found
        if isinstance(found[1], Unreadable):
            raise found[1]
        return found[1]


@attrs.frozen
class SaveView:
    """The files of a checkpoint directory at the time of a scan, as input for the functions that find saves."""

    directory: Path
    files: Mapping[str, FileVersion]  # by path below the directory
    directories: frozenset[str]
    world_size: int  # number of processes with a rank, each of which may write some files of a save
    cache: ReadCache
    foreign: Collection[str] = ()  # paths that a restore has copied from snapshots of other tasks

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
        """Return the sorted paths of all files below a directory. "" is the whole checkpoint directory."""
        prefix = f"{directory}/" if directory else ""
        return tuple(sorted(path for path in self.files if path.startswith(prefix)))

    def newest_time(self, paths: Iterable[str]) -> int:
        """Return the latest modification time of files, in nanoseconds since the epoch."""
        return max((self.files[path].mtime_ns for path in paths if path in self.files), default=0)


def join(*parts: str) -> str:
    """Join the parts of a path; empty parts are left out."""
    return "/".join(filter(None, parts))


def beside(path: str, name: str) -> str:
    """Return the path of the file ``name`` in the directory of the file ``path``."""
    return join(dirname(path), name)


def step_of(path: str) -> Optional[int]:
    """Return the number with the label ``step`` or ``iter`` in the last component of a path, or None."""
    return labelled_step(basename(path))


PATIENCE = 30.0  # minimum seconds to wait for an entry that earlier saves contain
_LONGEST = 300.0  # maximum seconds to wait for an entry that was late in earlier saves
_MOST_NAMES = 100
_NUMBERED = "#"  # stands for all entries with a number in their name
_BURST_NS = 10**9  # ns; an entry written again after a longer time belongs to another save
_DIGIT = re.compile(r"[0-9]")


class _Followers:
    """Learns which entries (followers) a program writes after another entry of the same save, and how much later.

    A snapshot may be taken in a pause within a save, so snapshots do not show where a save ends. Instead, this class
    assumes that pauses within a save are shorter than pauses between saves.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # modification time of an entry's newest version in ns, by name
        self._pauses: dict[tuple[str, str], float] = {}  # longest pause in seconds, by entry and follower
        self._rare: set[tuple[str, str]] = set()  # pairs of entry and follower; at least one save lacked the follower

    def written(self, name: str, mtime_ns: int) -> None:
        """Record a new version of an entry. ``name`` is _NUMBERED for every entry with a number in its name."""
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
        """Forget the times of the entries, but keep the learned pauses."""
        self._last = {}

    def missing(self) -> dict[str, float]:
        """Return the followers that the current save lacks, each with its longest pause (seconds) in earlier saves."""
        return {each: self._pauses[first, each] for first, each in self._pairs() if each != _NUMBERED}

    def give_up(self) -> None:
        """Stop waiting for the followers that are missing now, in this save and in later saves."""
        for pair in self._pairs():
            del self._pauses[pair]
            self._rare.add(pair)

    def _pairs(self) -> list[tuple[str, str]]:
        return [(first, each) for first, each in self._pauses if self._last.get(each, 0) < self._last.get(first, 0)]


class OverwrittenEntries:
    """Learns which overwritten entries belong to every save, and reports an entry that the current save lacks.

    An entry is *usual* if it has no number in its name and the previous save wrote it.
    """

    def __init__(self) -> None:
        self._followers = _Followers()
        self._usual: set[str] = set()
        self._is_mixed = False  # whether the previous save also wrote entries with a number
        self._rare: set[str] = set()  # entries that at least one save lacked
        self._former: set[str] = set()  # entries of all earlier saves
        self._written: dict[str, int] = {}  # modification times in ns of the current save's entries, by path
        self._numbered_ns = 0  # newest modification time of the current save's numbered entries; 0 if there are none
        self._is_begun = False
        self._waiting_since: Optional[float] = None

    @property
    def are_known(self) -> bool:
        """Whether the usual entries are known."""
        return bool(self._usual)

    def written(self, path: str, mtime_ns: int, *, was_open: bool) -> None:
        """Record a new version of an entry. ``was_open``: whether the entry was open at the last observation."""
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
        """Record a snapshot of the current save. The next write begins a new save."""
        if self._is_begun:
            self._end()
        self._forget()

    def restored(self) -> None:
        """Forget the current save, but keep the usual entries, because the next process will write them again."""
        self._followers.restored()
        self._forget()

    def _forget(self) -> None:
        self._written, self._numbered_ns, self._is_begun, self._waiting_since = {}, 0, False, None

    def lacking(self, now: float, removed: Iterable[str]) -> Optional[str]:
        """Return an entry that the current save still lacks, or None.

        Also returns None if the entry has been missing for too long. ``removed``: paths of the last snapshot that no
        longer exist.
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
        """End the current save, and determine the usual entries from it.

        A new file may be a configuration file if it was written before the entries with a number. Such a file is not
        usual. A file written after these entries is usual, because it probably lists them.
        """
        self._rare |= self._unwritten()
        shown = {path for path, when in self._written.items() if path in self._former or when >= self._numbered_ns}
        self._usual, self._is_mixed = shown - self._rare, self._numbered_ns > 0
        self._former |= self._written.keys()
        self._written, self._numbered_ns = {}, 0

    def _unwritten(self) -> set[str]:
        """Return the usual entries that the current save has not written.

        Returns an empty set if the current save may be of another kind than the previous one. For example, the first
        save may have been only a configuration file.
        """
        is_same_kind = self._is_mixed or (not self._numbered_ns and not self._usual.isdisjoint(self._written))
        return self._usual - self._written.keys() if is_same_kind else set()
