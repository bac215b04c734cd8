"""The entries that a program writes again in each save, such as ``last.pt`` or a link to the newest directory.

Their names have no number, so only earlier saves show that a new save still lacks one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

PATIENCE = 30.0  # seconds to wait for an entry that earlier saves have written, or longer if it came later
_LONGEST = 300.0  # seconds
_MOST_NAMES = 100
_NUMBERED = "#"  # common name of all entries with numbers
_BURST_NS = 10**9  # a second version that is so much newer is of another save
_NUMBER = re.compile(r"[0-9]")


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
            self._followers.written(_NUMBERED if _NUMBER.search(path) else path, mtime_ns)
        if _NUMBER.search(path):
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
        missing = {path for path in removed if not _NUMBER.search(path)}
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
