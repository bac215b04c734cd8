"""A checkpoint, as those know it who do not look into it."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime import clock


@attrs.frozen
class ResumePoint:
    """One save of a training, as it is named everywhere: on the wire, in the event log, in ``status.json``.

    The one with the highest ``save`` is the newest.
    """

    step: Optional[int]  # None: neither the program nor its files say one
    uri: str  # on the store; empty: it is not there, or not yet
    save: int = 0  # counts the saves of a training; 0: not known
    saved_ms: int = 0  # epoch, when the program saved it, by its node's clock; 0: not known
    checksum: str = ""  # of its manifest; empty: not known
    reported: bool = False  # the step is the one that the program reported last, and not one that its files say

    @property
    def label(self) -> str:
        """The checkpoint's name for people: ``step 120``, or ``save 7, 14:03:12 UTC``."""
        if self.step is not None:
            return f"step {self.step}"
        return f"save {self.save}, {clock.time_of_day(self.saved_ms)}"

    def is_later_step(self, than: ResumePoint) -> Optional[bool]:
        """None where steps do not tell: one is not known, both are the same, or they may count different things, as
        what a program reports and what it calls its files.
        """
        if self.step is None or than.step is None or self.step == than.step or self.reported != than.reported:
            return None
        return self.step > than.step
