"""Identifier of a checkpoint that a process may resume from."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.common import clock, quantities


@attrs.frozen
class ResumePoint:
    """Identifies one checkpoint of a training, in messages, in the event log and in ``status.json``.

    The checkpoint with the highest ``save`` is the newest.
    """

    step: Optional[int]  # None if neither the program nor its files have a step
    uri: str  # in the storage; empty if the checkpoint is not stored
    save: int = 0  # number of the checkpoint in its training; 0 if unknown
    saved_ms: int = 0  # epoch, when the program saved it, by its node's clock; 0 if unknown
    checksum: str = ""  # of its manifest; empty if unknown
    reported: bool = False  # the files contain no step, so ``step`` is the one that the program reported last
    reported_step: Optional[int] = None  # that the program reported last before the snapshot
    files: int = 0  # 0 if unknown
    size: int = 0  # bytes of all its files
    sent: int = 0  # bytes that were uploaded for it; the other bytes were uploaded for older checkpoints

    @property
    def label(self) -> str:
        """The checkpoint's name for people, such as ``snapshot 12 (step 40, saved 14:03:12 UTC)``."""
        facts = [f"step {self.step}"] if self.step is not None else []
        if self.saved_ms:
            facts.append(f"saved {clock.time_of_day(self.saved_ms)}")
        stored = f"snapshot {self.save}" if self.save else "a snapshot"
        name = stored if self.uri else "its directory"
        return f"{name} ({', '.join(facts)})" if facts else name

    @property
    def extent(self) -> str:
        """Size for people: ``3.1 GiB in 42 files, 120 MiB new``; empty if unknown."""
        if not self.files:
            return ""
        return (
            f"{quantities.size(self.size)} in {quantities.count(self.files, 'file')}, {quantities.size(self.sent)} new"
        )

    @property
    def description(self) -> str:
        """Label and extent."""
        return f"{self.label}: {self.extent}" if self.extent else self.label

    def is_later_step(self, than: ResumePoint) -> Optional[bool]:
        """Return whether the step is later than that of ``than``, or None if the steps do not show this.

        They do not if a step is unknown, if both are equal, or if one is from a report and the other from files, which
        may count different things.
        """
        if self.step is None or than.step is None or self.step == than.step or self.reported != than.reported:
            return None
        return self.step > than.step

    def was_not_loaded(self, first_step: int) -> bool:
        """Return whether a program whose first reported step is ``first_step`` has not resumed from this checkpoint.

        The step in files may count other things than reports do, such as epochs. So it is compared only if the program
        had reported at least half of it before the snapshot.
        """
        if self.step is None:
            return False
        if self.reported:  # reports continue during the snapshot, so only a much earlier step counts
            return 2 * first_step < self.step
        return first_step < self.step and 2 * (self.reported_step or 0) >= self.step
