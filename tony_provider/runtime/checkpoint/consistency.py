"""Decide when a checkpoint directory is consistent, so that a snapshot of it contains only complete saves.

A save is everything that the program writes for one checkpoint. DirectoryWatch scans the directory every few seconds
and compares the scans. It never compares clocks of different machines, and does not order saves by the numbers in
their names. Times are seconds of one monotonic clock, except in variables whose names end with ``_ns``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Callable, Optional, Union

import attrs

from tony_provider.runtime.artifacts.manifest import FileVersion, Kind, Tree, TreeNode
from tony_provider.runtime.checkpoint.save_view import (
    MANIFEST_SUFFIX,
    PATIENCE,
    OverwrittenEntries,
    is_temporary,
    step_in,
)

QUIET = 3.0  # seconds without a change after which a save counts as complete
_LONGEST_QUIET = 300.0  # seconds; maximum of the longer quiet time for programs that pause within a save
_YOUNG = 600.0  # age of a directory in seconds; new files in an older directory belong to a new save
_TEMPORARY = 60.0  # seconds without a change after which a temporary file counts as abandoned
_BURST_NS = 10**9  # a longer pause between two writes ends a burst of writes
_BURSTS = 2  # number of complete bursts to wait for, to learn which files belong to a save
_BROKEN = 120.0  # seconds without a change after which a broken file no longer prevents snapshots
_GROWTH = 120.0  # seconds of appending after which any file counts as a log
_APPENDING = 10.0  # maximum seconds between two appends; a later write may be an overwrite
# A .txt file counts as a log only by its name, because a model may also be a text file.
_LOG = re.compile(
    r".*\.(?:log|jsonl|csv|out|err)|.*(?:log|result|metric|loss|history|progress).*\.txt|.*\.tfevents.*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9]+")
_DECLARE = "have the program call tony_sdk.commit_checkpoint(step, path) when a save is complete"
_CLOSE = "have the program close it after each save, or list it in checkpoint.exclude"
_RENAME = "have the program rename it when it is complete, and remove it otherwise"


@attrs.frozen
class Verified:
    """Complete, broken and outdated files of a directory, according to the readers of known formats."""

    whole: Collection[str] = ()  # paths of complete files
    broken: Mapping[str, str] = attrs.field(factory=dict)  # reasons why files are incomplete, by path
    declared: Mapping[str, Collection[str]] = attrs.field(factory=dict)  # paths that a complete manifest lists
    outdated: Collection[str] = frozenset()  # paths that changed after the newest manifest that lists them


@attrs.frozen
class Moment:
    """A moment at which the directory is consistent, except for paths that are still being written."""

    unfinished: frozenset[str] = frozenset()  # paths that the snapshot must leave out
    growing: frozenset[str] = frozenset()  # paths of logs that may grow during the copy


@attrs.frozen
class Blocker:
    """A reason why the directory is not consistent now."""

    path: str  # path of the file that is the reason; empty if no single file is the reason
    reason: str
    remedy: str = ""  # advice for the user if the reason persists

    def __str__(self) -> str:
        return f"{self.path} {self.reason}".strip()


@attrs.define
class _Seen:
    """A file, link or directory as of the last observation."""

    node: TreeNode
    changed: float  # time at which the watch observed the last change
    growing_since: Optional[float] = None  # since when all changes were appends; None after any other change
    is_log: bool = False  # whether the entry is a log, which the watch ignores when it checks for complete saves


class _Bursts:
    """Bursts of writes of a program: groups of writes with pauses of over a second between them.

    If every burst so far has written the same kinds of files, each burst is a save. In this case, the directory is
    consistent between bursts, even if the program saves every few seconds and never pauses for QUIET seconds.

    But bursts of numbered files, such as ``shard-0`` and ``shard-1``, may be pieces of a single save. Therefore, the
    names in each burst must contain a new step, or all bursts must write a common path, such as ``latest``.
    """

    def __init__(self) -> None:
        self._usual: Optional[set[str]] = None  # path patterns of the previous burst; None before the first one ends
        self._common: set[str] = set()  # paths that all bursts have written
        self._steps: set[int] = set()  # steps in the paths of all bursts
        self._complete = 0
        self._is_irregular = False
        self._present: set[str] = set()
        self._last_ns = 0

    def add(self, written: Collection[tuple[int, str]]) -> None:
        """Add the files written since the last observation, as pairs of modification time in ns and path."""
        for when, path in sorted(written):
            if self._present and when - self._last_ns > _BURST_NS:
                self._end()
            self._present.add(path)
            self._last_ns = max(when, self._last_ns)

    def _end(self) -> None:
        self._is_irregular = self._is_irregular or not self._is_save
        self._usual = set(map(_pattern, self._present))
        self._common = self._common & self._present if self._complete else self._present
        self._steps |= _steps(self._present)
        self._complete += 1
        self._present = set()

    @property
    def _is_save(self) -> bool:
        """Whether the current burst has written all files of a save, and does not continue an earlier save."""
        if self._usual is None:
            return True
        steps = _steps(self._present)
        is_another = bool(self._common & self._present) or (len(steps) == 1 and not steps & self._steps)
        return is_another and self._usual == set(map(_pattern, self._present))

    def is_complete(self, clock_ns: int) -> bool:
        """Return whether the current burst is over and has written all files of a save."""
        if self._is_irregular or self._complete < _BURSTS or not self._is_save:
            return False
        return clock_ns - self._last_ns > _BURST_NS


class DirectoryWatch:
    """Tracks the changes of one checkpoint directory and finds the moments at which it is consistent.

    Call ``observe`` every few seconds, then ``moment`` if ``has_news`` is true, and ``taken`` after each snapshot.
    """

    def __init__(self) -> None:
        self._tree = Tree({})
        self._snapshot: Mapping[str, TreeNode] = {}
        self._seen: dict[str, _Seen] = {}
        self._changed: dict[str, float] = {}  # time of the last change, by top-level entry, including removed entries
        self._created: dict[str, float] = {}  # time of the first observation, by top-level entry
        self._quiet: dict[str, float] = {}  # quiet times longer than QUIET, by name pattern of top-level entries
        self._writing: frozenset[str] = frozenset()
        self._versions: dict[str, int] = {}  # number of versions that the program has written, by path
        self._written: list[tuple[int, str]] = []  # mtime_ns and path of files written since the last observation
        self._bursts = _Bursts()
        self._overwritten = OverwrittenEntries()
        self._formatted: Collection[str] = ()  # paths of files that a reader of a known format has verified
        self._consistent_at = float("-inf")  # time of the last consistent moment

    # ---- changes of the directory --------------------------------------------------------------------------------

    def observe(self, now: float, tree: Tree, writing: Optional[Collection[str]] = None) -> None:
        """Record the directory's content.

        ``writing``: paths that a process has open for writing. Pass None if no process is left: the paths open
        at the last observation stay marked, because the process may have ended in the middle of a write.
        """
        touched: dict[str, bool] = {}  # whether all changes in a top-level entry are new paths, by entry
        for path in {*self._seen, *tree.nodes}:
            is_new = self._note(now, path, tree.nodes.get(path))
            if is_new is not None:
                top = _top(path)
                touched[top] = touched.get(top, True) and is_new
        for top, only_new in touched.items():
            if only_new:
                self._learn_pause(now, top)
            self._changed[top] = now
        for path in tree.nodes:
            self._created.setdefault(_top(path), now)
        self._created = {top: when for top, when in self._created.items() if top in tree.nodes}
        self._bursts.add(self._written)
        self._written = []
        self._tree = tree
        if writing is not None:
            self.opened(writing)

    def opened(self, writing: Collection[str]) -> None:
        """Note the paths that a process has open for writing now."""
        self._writing = frozenset(writing)

    def _note(self, now: float, path: str, node: Optional[TreeNode]) -> Optional[bool]:
        """Record a path. Return True if it is new, False if changed or removed, None if unchanged or a growing log."""
        seen = self._seen.get(path)
        if node is None:
            del self._seen[path]
            return False
        if seen is not None and _is_same(seen.node, node):
            return None
        if node.kind is Kind.FILE and not _is_temporary(path):
            self._versions[path] = self._versions.get(path, 0) + 1
            self._written.append((node.version.mtime_ns, path))
        is_log = is_named_log(path)
        if node.kind is not Kind.DIRECTORY and not is_log and not _is_temporary(path):
            self._overwritten.written(path, node.version.mtime_ns, was_open=path in self._writing)
        if seen is None:
            self._seen[path] = _Seen(node, now)
            return True
        appended = node.kind is Kind.FILE and _has_grown(seen.node.version, node.version)
        goes_on = appended and now - seen.changed <= _APPENDING
        since = (seen.growing_since or seen.changed) if goes_on else None
        has_grown_long = seen.is_log or (since is not None and now - since >= _GROWTH)
        is_log = appended and path not in self._formatted and (is_log or has_grown_long)
        self._seen[path] = _Seen(node, now, since, is_log)
        return None if is_log else False

    def _learn_pause(self, now: float, top: str) -> None:
        """Raise the quiet time for the name pattern of ``top`` if a snapshot was taken before ``top`` was complete."""
        is_young = now - self._created.get(top, now) < _YOUNG
        if top in self._snapshot and is_young and top in self._changed:
            pause, pattern = now - self._changed[top], _pattern(top)
            self._quiet[pattern] = max(self._quiet_of(top), min(_LONGEST_QUIET, 2 * pause))

    # ---- consistent moments --------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether the directory has changed since the last snapshot, apart from growing logs."""
        return next(self._news(), None) is not None

    def changed_entries(self, tree: Tree) -> frozenset[str]:
        """Return the top-level entries of a tree that differ from the last snapshot."""
        return frozenset(_top(path) for path in self._news() if path in tree.nodes)

    def taken(self, tree: Tree) -> None:
        """Record that a snapshot or a restore has made the stored tree equal to ``tree``."""
        self._snapshot = tree.nodes
        if not self.has_news:  # if there is news, the program has begun the next save during the upload
            self._overwritten.taken()

    def restored(self, now: float, tree: Tree) -> None:
        """Forget all changes, after a restore has replaced the directory's content by ``tree``."""
        self._seen, self._changed, self._created = {}, {}, {}
        self.observe(now, tree, ())
        self._changed, self._versions = {}, {}
        self._written, self._bursts, self._consistent_at = [], _Bursts(), float("-inf")
        self._overwritten.restored()
        self.taken(tree)

    def moment(self, now: float, verify: Callable[[], Verified], clock_ns: int = 0) -> Union[Moment, Blocker]:
        """Return a Moment if the directory is consistent now, otherwise a Blocker with the reason.

        ``verify`` reads the files of known formats. It is slow, so cheap checks come first.
        ``clock_ns``: the time by the clock of the file system, in nanoseconds since the epoch.
        """
        if self._declares():
            return self._declared(now, verify())
        blocker, restless = self._being_written(now), self._restless(now)
        if blocker is not None:
            return blocker
        is_regular = self._bursts.is_complete(clock_ns) and not any(
            seen.growing_since is not None and not seen.is_log for seen in self._seen.values()
        )
        if restless is not None and not (is_regular or self._is_one_file):
            return restless
        verified = verify()
        self._formatted = verified.whole
        for path, reason in sorted(verified.broken.items()):
            seen = self._seen.get(path)
            if seen is not None and now - seen.changed < _BROKEN:
                return Blocker(path, f"is not complete: {reason}", _DECLARE)
        if restless is not None and not is_regular and not set(self._news()) <= set(verified.whole):
            return restless
        self._consistent_at = now
        return Moment(growing=self._logs)

    @property
    def _is_one_file(self) -> bool:
        """Whether the program has repeatedly written a single file, so that a save consists of this file."""
        written = [
            count for path, count in self._versions.items() if path in self._seen and not self._seen[path].is_log
        ]
        return len(written) == 1 and written[0] > 1

    def at_exit(self) -> Moment:
        """Return the Moment for a program that has ended successfully. Its snapshot includes all files."""
        return Moment(growing=self._logs)

    def after_failure(self, now: float, verify: Callable[[], Verified]) -> Optional[Moment]:
        """Return the Moment for a program that failed or was killed, or None if the directory is not consistent.

        Entries written since the last snapshot are left out if they are neither quiet nor verified. The directory is
        not consistent in two cases:

        - The program was writing into an entry of the last snapshot.
        - The program has removed an entry, and no new entry with the same name pattern is complete.
        """
        news = set(self._news())
        if not news:
            return Moment(growing=self._logs)
        verified = verify()
        if not verified.declared and self._overwritten.lacking(now, self._removed()) is not None:
            return None
        listed = {path for paths in verified.declared.values() for path in paths}
        temporary = {path for path in news if _is_temporary(path)} - listed
        cut_short = {path for path in news if self._is_unsettled(now, path)} - set(verified.whole) - temporary
        cut_short |= news & {*verified.broken, *verified.outdated}
        lacking = self._lacking(now)
        cut_short |= {path for path in news if _number(_top(path)) in lacking}
        if unfinished := cut_short | temporary:  # also leave out the complete files of an unfinished save
            is_next_save = self._overwritten.are_known and not cut_short
            complete = set(verified.whole) if is_next_save else self._complete_saves(verified, listed, cut_short)
            unfinished |= {path for path in news if self._is_newer_than_moment(path)} - complete
        tops = {_top(path) for path in unfinished}
        removed = {_pattern(path) for path in self._removed()}
        kept = (path for path in news - unfinished if path in self._seen and not self._is_directory(path))
        is_replaced = any(_pattern(path) in removed for path in kept)
        if any(top in self._snapshot for top in tops) or (tops and removed and not is_replaced):
            return None
        left_out = {path for path in self._tree.nodes if _top(path) in tops}
        return Moment(frozenset(left_out | self._empty_saves()), self._logs)

    @property
    def last_change(self) -> float:
        """Time at which the newest change since the last snapshot was observed. Minus infinity if there is none."""
        return max((self._seen[path].changed for path in self._news() if path in self._seen), default=float("-inf"))

    @property
    def changed_files(self) -> list[str]:
        """Paths of files that differ from the last snapshot, except logs that have only grown."""
        return [path for path in self._news() if path in self._seen and self._seen[path].node.kind is Kind.FILE]

    def _complete_saves(self, verified: Verified, listed: Collection[str], cut_short: Collection[str]) -> set[str]:
        """Return the complete files, without files of a save that was cut short.

        Files with the same number in their top-level name belong to the same save. A file without a number is returned
        only if a manifest lists it, or if the program writes no other file.
        """
        numbers = {None, *(_number(_top(path)) for path in cut_short)}
        is_only = sum(path in self._seen and not self._seen[path].is_log for path in self._versions) == 1
        return {path for path in verified.whole if is_only or path in listed or _number(_top(path)) not in numbers}

    # ---- helpers -------------------------------------------------------------------------------------------------

    def _news(self) -> Iterator[str]:
        """Yield the paths that differ from the last snapshot, except logs that have only grown."""
        for path, seen in self._seen.items():
            before = self._snapshot.get(path)
            if before is None or not (
                _is_same(before, seen.node) or (seen.is_log and _has_grown(before.version, seen.node.version))
            ):
                yield path
        yield from self._removed()

    def _removed(self) -> Iterator[str]:
        """Return the paths of the last snapshot that no longer exist."""
        return (path for path in self._snapshot if path not in self._seen)

    @property
    def _logs(self) -> frozenset[str]:
        return frozenset(path for path, seen in self._seen.items() if seen.is_log)

    def _being_written(self, now: float) -> Optional[Blocker]:
        if self._tree.torn:
            return Blocker("", "files were removed while the directory was read", _DECLARE)
        for path in sorted(self._writing):
            if path in self._seen and not self._seen[path].is_log:
                return Blocker(path, "is open for writing", _CLOSE)
        for path, seen in self._seen.items():
            if _is_temporary(path) and now - seen.changed < _TEMPORARY:
                return Blocker(path, "has the name of a temporary file", _RENAME)
        return None

    def _restless(self, now: float) -> Optional[Blocker]:
        """Return a Blocker if a save may be incomplete. Does not read the files."""
        for top, changed in self._changed.items():
            if now - changed < self._quiet_of(top):
                return Blocker(top, f"was changed less than {self._quiet_of(top):g} s ago", _DECLARE)
        for path in sorted(self._empty_saves()):
            if now - self._seen[path].changed < PATIENCE:
                return Blocker(path, "is still empty", _DECLARE)
        for number, former in self._lacking(now).items():
            return Blocker("", f"the save {number} still lacks files that the save {former} has", _DECLARE)
        entry = self._overwritten.lacking(now, self._removed())
        if entry is not None:
            return Blocker(entry, "is not written yet, although the saves before have it", _DECLARE)
        return None

    def _lacking(self, now: float) -> Mapping[str, str]:
        """Return the numbers of new saves that lack files, each with the number of a former save that has these files.

        The number of a save is in its top-level names. Entries with the same number, such as G_10 and D_10, belong to
        the same save.
        """
        saves: dict[str, set[str]] = {}
        newest: dict[str, float] = {}  # time of the last change, by number of the save
        for path, seen in self._seen.items():
            number = _number(_top(path))
            if number is not None and seen.node.kind is Kind.FILE:
                saves.setdefault(number, set()).add(_pattern(path))
                newest[number] = max(seen.changed, newest.get(number, seen.changed))
        fresh = {_number(_top(path)) for path in self._news() if path in self._seen} - {None}
        former = [number for number in saves if number not in fresh]
        if not former:
            return {}
        newest_former = max(former, key=lambda number: newest[number])
        lacking = {}
        for number in saves.keys() & fresh:
            if now - newest[number] >= PATIENCE:
                continue  # the missing files are not expected any more
            missing = saves[newest_former] - saves[number]
            # If all files are missing, their names contain another varying part, such as the loss. So do not wait.
            if missing and missing != saves[newest_former]:
                lacking[number] = newest_former
        return lacking

    def _empty_saves(self) -> set[str]:
        """Return new directories without files whose names contain a number: saves that have just begun."""
        found = {path for path in self._news() if path in self._seen and self._is_directory(path)}
        found = {path for path in found if _NUMBER.search(path.rpartition("/")[2])}
        if not found:
            return found
        return found - {parent for path in self._seen if not self._is_directory(path) for parent in _parents(path)}

    def _is_directory(self, path: str) -> bool:
        return self._seen[path].node.kind is Kind.DIRECTORY

    def _quiet_of(self, top: str) -> float:
        return self._quiet.get(_pattern(top), QUIET)

    def _is_unsettled(self, now: float, path: str) -> bool:
        """Return whether a path was changed too recently, or was open for writing at the last observation."""
        if path in self._writing:
            return True
        if path in self._seen and self._is_directory(path):
            return False  # the caller checks the directory's files one by one
        top = _top(path)
        if top not in self._seen:
            return False  # the program has removed the whole save
        changed = self._seen[path].changed if path in self._seen else self._changed.get(top, 0.0)
        return now - changed < self._quiet_of(top)

    def _is_newer_than_moment(self, path: str) -> bool:
        """Return whether a file has changed since the last consistent moment."""
        seen = self._seen.get(path)
        return seen is not None and seen.node.kind is not Kind.DIRECTORY and seen.changed > self._consistent_at

    def _declares(self) -> bool:
        return any("/" not in path and path.endswith(MANIFEST_SUFFIX) for path in self._seen)

    def _declared(self, now: float, verified: Verified) -> Union[Moment, Blocker]:
        """Return the result of ``moment`` for a program that writes a manifest for each complete save."""
        news = set(self._news())
        fresh = [path for path in verified.declared if path in news]
        if not fresh:
            return Blocker("", "the program has written no manifest since the last snapshot", _DECLARE)
        if outdated := min(news & set(verified.outdated), default=""):
            return Blocker(outdated, "is newer than the manifest that lists it", _DECLARE)
        listed = {path for paths in verified.declared.values() for path in paths} | set(verified.declared)
        unfinished = frozenset(
            path
            for path in news
            if path in self._seen
            and path not in listed
            and self._is_unsettled(now, path)
            and self._seen[path].node.kind is not Kind.DIRECTORY
        )
        return Moment(unfinished, self._logs)


def _top(path: str) -> str:
    return path.partition("/")[0]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _pattern(path: str) -> str:
    return _NUMBER.sub("#", path)


def _steps(paths: Collection[str]) -> set[int]:
    """Return the steps in paths. The step of a path is in its first component that contains a step."""
    found = ([step_in(part.rpartition(".")[0] or part) for part in path.split("/")] for path in paths)
    firsts = (next((step for step in steps if step is not None), None) for steps in found)
    return {step for step in firsts if step is not None}


def _number(top: str) -> Optional[str]:
    """Return the number that identifies the save: the last one in a top-level name without its suffix, or None."""
    found = _NUMBER.findall(top.partition(".")[0])
    return found[-1] if found else None


def is_named_log(path: str) -> bool:
    """Return whether a file has the name of a log."""
    return _LOG.fullmatch(path.rpartition("/")[2]) is not None


def _is_temporary(path: str) -> bool:
    return any(map(is_temporary, path.split("/")))


def _is_same(one: TreeNode, other: TreeNode) -> bool:
    """Return whether two nodes are the same version of an entry.

    The times of directories are ignored, because the entries in a directory are compared one by one.
    """
    if one.kind is not other.kind or one.mode != other.mode or one.target != other.target:
        return False
    if one.kind is Kind.FILE:
        return one.version.without_ctime == other.version.without_ctime
    return True


def _has_grown(before: FileVersion, after: FileVersion) -> bool:
    return (before.device, before.inode) == (after.device, after.inode) and before.size < after.size
