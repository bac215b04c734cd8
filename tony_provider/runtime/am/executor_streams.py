"""The ways to the executors, by task: one each, the newest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime.am.service import Outgoing, Stream


class ExecutorStreams:
    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def attach(self, stream: Stream) -> None:
        """In place of a former one, which ends."""
        self.close(stream.identity.task)
        self._streams[stream.identity.task] = stream

    def detach(self, stream: Stream) -> bool:
        """It has ended; False when another took its place before."""
        if self._streams.get(stream.identity.task) is not stream:
            return False
        del self._streams[stream.identity.task]
        return True

    def close(self, task: str) -> None:
        """End it from here."""
        stream = self._streams.pop(task, None)
        if stream:
            stream.close()

    def find(self, task: str) -> Optional[Stream]:
        """None: its executor is not there now."""
        return self._streams.get(task)

    def send(self, task: str, message: Outgoing) -> None:
        """Without a stream it goes nowhere: what matters is said again to an executor that comes back."""
        stream = self._streams.get(task)
        if stream:
            stream.send(message)

    def send_all(self, tasks: Iterable[str], message: Outgoing) -> None:
        for task in tasks:
            self.send(task, message)
