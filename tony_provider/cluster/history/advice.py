"""A piece of advice: what a rule has to say to those who run a job."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import attrs


class Confidence(StrEnum):
    """How sure a rule is."""

    LOW = "low"  # one job, or few samples
    MEDIUM = "medium"
    HIGH = "high"  # several jobs say the same


@attrs.frozen(kw_only=True)
class Advice:
    """What should be changed in a job, why, and the change itself."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    rule: str  # its name, and that of its section in docs/advice.md, such as memory-too-much
    text: str  # one line for people: what to do, and the figures that say so
    evidence: dict[str, Any] = attrs.field(factory=dict)  # figures, by name; bytes and seconds
    confidence: Confidence = Confidence.LOW
    change: dict[str, Any] | None = None  # a merge patch, as ``overrides`` takes it; None: no key would do it
    gain: float = 0.0  # 0 to 1: of what the job cost in resources or time, for the order in which they are shown
