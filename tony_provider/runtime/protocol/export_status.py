"""Exports of a model on its way, as the job status and the event log name them."""

from __future__ import annotations

import attrs

from tony_provider.runtime import clock


@attrs.frozen
class ExportedModel:
    """An export that is on the store."""

    step: int
    uri: str  # of its directory
    exported_ms: int = 0  # epoch, when the program had it whole, by its node's clock
    asked_ms: int = 0  # of the newest ExportRequest that came before it; 0: the program made it by itself

    @property
    def label(self) -> str:
        """For people: ``step 120, 14:03:12 UTC``."""
        return f"step {self.step}, {clock.time_of_day(self.exported_ms)}"


@attrs.frozen
class ExportRequest:
    """A request for an export that is not answered yet."""

    asked_ms: int  # epoch, by the master's clock: which request it is
    reason: str
    since_ms: int  # when the first one was made that is not answered
    problem: str = ""  # why the export that it led to is not on the store; empty: none has failed
