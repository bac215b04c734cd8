"""How far one user process is: by its own reports, and else by its event files."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.executor.progress_reports import ProgressReader
from tony_provider.runtime.executor.tensorboard.event_scalars import EventScalars
from tony_provider.runtime.protocol import tony_pb2


class UserProgress:
    """Reads what one user process says. Its own reports count alone, once there is one."""

    def __init__(self, reports: ProgressReader, events: Optional[EventScalars]) -> None:
        self._reports = reports
        self._events = events

    def reported(self, now: float) -> Optional[tony_pb2.Progress]:
        """What it has reported itself. Blocks; ``now`` in seconds of any steady clock."""
        return self._reports.look(now)

    def look(self, now: float) -> Optional[tony_pb2.Progress]:
        """What is known of it; None: nothing yet. Blocks; ``now`` in seconds of any steady clock."""
        reported = self._reports.look(now)
        if reported is not None:
            self._events = None
        return self._events.look(now) if self._events else reported
