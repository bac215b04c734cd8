"""A committed checkpoint, as those know it who do not look into it."""

from __future__ import annotations

import time
from typing import Optional

import attrs


@attrs.frozen
class ResumePoint:
    """A committed checkpoint that processes can go on from. The one with the highest ``save`` is the newest."""

    step: Optional[int]  # None: neither the program nor its files say one
    uri: str  # on the store
    save: int = 0  # counts the saves of a training; 0: not known
    saved_ms: int = 0  # epoch, when the program saved it, by its node's clock; 0: not known
    checksum: str = ""  # of its manifest; empty: not known

    @property
    def label(self) -> str:
        """For people: ``step 120``, or ``save 7, 14:03:12 UTC``."""
        return label(self.step, self.save, self.saved_ms)


def label(step: Optional[int], save: int, saved_ms: int) -> str:
    """See ``ResumePoint``."""
    if step is not None:
        return f"step {step}"
    return f"save {save}, {time.strftime('%H:%M:%S', time.gmtime(saved_ms / 1000))} UTC"
