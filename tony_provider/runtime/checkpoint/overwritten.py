"""The entries that a program writes again in each save, such as ``last.pt`` or a link to the newest directory.

Their names have no number, so only the saves before show that a new save still lacks one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

PATIENCE = 30.0  # seconds to wait for an entry that the saves before have written
_BURST_NS = 10**9  # a second version that is so much newer is of another save
_NUMBER = re.compile(r"[0-9]")


class OverwrittenEntries:
    """Learns from what the program writes before each snapshot which entries belong to every save."""

    def __init__(self) -> None:
        self._usual: set[str] = set()
        self._is_mixed = False  # the save that showed them had entries with numbers, too
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
        """Note a new version of an entry. ``was_open``: the program had it open for writing at the last look."""
        self._is_begun = True
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
        self.restored()

    def restored(self) -> None:
        """Forget the present save."""
        self._written, self._numbered_ns, self._is_begun, self._waiting_since = {}, 0, False, None

    def lacking(self, now: float, removed: Iterable[str]) -> Optional[str]:
        """Return an entry that the present save still has to write, or None. Give up some time after the first call.

        ``removed``: entries of the last snapshot that do not exist now.
        """
        missing = {path for path in removed if not _NUMBER.search(path)}
        if self._is_begun:
            missing |= self._unwritten()
        if not missing:
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = now
        return min(missing) if now - self._waiting_since < PATIENCE else None

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
