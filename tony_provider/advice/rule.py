"""The interface of a rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tony_provider.advice.case import Case
from tony_provider.cluster.history.advice import Advice, Confidence


class Rule(ABC):
    """One thing that can be better about a job. Pure: it looks at nothing but the case."""

    name: ClassVar[str]  # and that of its section in docs/advice.md

    @abstractmethod
    def advise(self, case: Case) -> Advice | None:
        """What it has to say; None: nothing, or too little is known. May raise for a history that is damaged."""

    def advice(
        self,
        text: str,
        gain: float,
        confidence: Confidence = Confidence.LOW,
        change: dict[str, Any] | None = None,
        **evidence: Any,
    ) -> Advice:
        """Its advice. ``gain`` is what the job cost without need, as a share, and cut to 0 to 1."""
        return Advice(
            rule=self.name,
            text=text,
            evidence=evidence,
            confidence=confidence,
            change=change or None,
            gain=min(1.0, max(0.0, gain)),
        )
