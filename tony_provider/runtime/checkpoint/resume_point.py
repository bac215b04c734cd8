"""Identifier of a checkpoint that a process may resume from."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.common import clock, quantities


@attrs.frozen
class ResumePoint:
    """Identifies and describes one checkpoint of a training, in messages, in the event log and in ``status.json``."""

    step: Optional[int]  # None if neither the program nor the files have a step
    uri: str  # URI of the stored checkpoint; empty if the checkpoint is only in the local checkpoint directory
    save: int = 0  # number of the checkpoint in its training; the newest has the highest; 0 if unknown
    saved_ms: int = 0  # epoch milliseconds of the program's save, by the node's clock; 0 if unknown
    checksum: str = ""  # checksum of the checkpoint's manifest; empty if unknown
    reported: bool = False  # whether ``step`` is the program's last report, because the files contain no step
    reported_step: Optional[int] = None  # last step that the program reported before the snapshot; None if none
    files: int = 0  # number of files; 0 if unknown
    size: int = 0  # total bytes of the files
    sent: int = 0  # bytes uploaded for this checkpoint; older checkpoints had uploaded all other bytes

    @property
    def label(self) -> str:
        """The checkpoint's name in messages, such as ``snapshot 12 (step 40, saved 14:03:12 UTC)``."""
        facts = [f"step {self.step}"] if self.step is not None else []
        if self.saved_ms:
            facts.append(f"saved {clock.time_of_day(self.saved_ms)}")
        stored = f"snapshot {self.save}" if self.save else "a snapshot"
        name = stored if self.uri else "its directory"
        return f"{name} ({', '.join(facts)})" if facts else name

    @property
    def extent(self) -> str:
        """The size in messages, such as ``3.1 GiB in 42 files, 120 MiB new``. Empty if unknown."""
        if not self.files:
            return ""
        return (
            f"{quantities.size(self.size)} in {quantities.count(self.files, 'file')}, {quantities.size(self.sent)} new"
        )

    @property
    def description(self) -> str:
        """Label and extent."""
        return f"{self.label}: {self.extent}" if self.extent else self.label

    def was_not_loaded(self, first_step: int) -> bool:
        """Return whether a program started from the beginning, although it should have resumed from this checkpoint.

        ``first_step`` is the first step that the program reports. A step in files may count other things than the
        reports, such as epochs. Therefore, the two steps are compared only if the last step reported before the
        snapshot was at least half of the step in the files.
        """
        if self.step is None:
            return False
        if self.reported:  # the report may be later than the save, so a slightly earlier first step is normal
            return 2 * first_step < self.step
        return first_step < self.step and 2 * (self.reported_step or 0) >= self.step
