"""The open streams to the executors, by task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.am.service import Outgoing, Stream


class ExecutorStreams:
    """The streams to the executors: at most one for each task, the newest."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def attach(self, stream: Stream) -> None:
        """Add a stream, in place of a former one of the task, which ends."""
        self.close(stream.identity.task)
        self._streams[stream.identity.task] = stream

    def detach(self, stream: Stream) -> bool:
        """Remove a stream that has ended; False when another took its place before."""
        if self._streams.get(stream.identity.task) is not stream:
            return False
        del self._streams[stream.identity.task]
        return True

    def close(self, task: str) -> None:
        """End a task's stream from here."""
        stream = self._streams.pop(task, None)
        if stream:
            stream.close()

    def find(self, task: str) -> Optional[Stream]:
        """The task's stream; None: its executor is not there now."""
        return self._streams.get(task)

    def send(self, task: str, message: Outgoing) -> None:
        """Send a message to a task's executor.

        Without a stream it goes nowhere: what matters is said again to an executor that comes back.
        """
        stream = self._streams.get(task)
        if stream:
            stream.send(message)

    def send_all(self, tasks: Iterable[str], message: Outgoing) -> None:
        for task in tasks:
            self.send(task, message)
