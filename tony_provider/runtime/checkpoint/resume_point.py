"""Resume points: committed checkpoints, for those who do not look into them."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime import clock


@attrs.frozen
class ResumePoint:
    """A committed checkpoint that processes can go on from. The one with the highest ``save`` is the newest."""

    step: Optional[int]  # None: neither the program nor its files say one
    uri: str  # on the store
    save: int = 0  # counts the saves of a training; 0: not known
    saved_ms: int = 0  # epoch, when the program saved it, by its node's clock; 0: not known
    checksum: str = ""  # of its manifest; empty: not known
    reported: bool = False  # the step is the one that the program reported last, and not one that its files say

    @property
    def label(self) -> str:
        """The checkpoint's name for people: ``step 120``, or ``save 7, 14:03:12 UTC``."""
        return label(self.step, self.save, self.saved_ms)


def is_later_step(step: Optional[int], reported: bool, than: Optional[int], than_reported: bool) -> Optional[bool]:
    """Whether a step is later than another; None where steps do not tell.

    They do not when one is not known, both are the same, or they may count different things, as what a program reports
    and what it calls its files.
    """
    if step is None or than is None or step == than or reported != than_reported:
        return None
    return step > than


def label(step: Optional[int], save: int, saved_ms: int) -> str:
    """The name of a checkpoint for people, as ``ResumePoint.label``."""
    if step is not None:
        return f"step {step}"
    return f"save {save}, {clock.time_of_day(saved_ms)}"
