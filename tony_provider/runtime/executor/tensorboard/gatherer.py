"""The event files of all tasks, from the store into the directory that TensorBoard reads."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.event_files.event_file_mirror import EventFileMirror
from tony_provider.runtime.executor.tensorboard.rounds import Rounds
from tony_provider.runtime.storage import Storage

MOST_BYTES = 8 << 30  # on this node's disk; what comes later is left out


class Gatherer(Rounds):
    """Copies what is new of all tasks' event files from the store."""

    def __init__(self, storage: Storage, source: str, directory: Path, most_bytes: int = MOST_BYTES) -> None:
        """Copy from ``source``, a URI, to ``directory``, both with what is below them."""
        super().__init__("event-files")
        self._mirror = EventFileMirror(storage, {source: directory}, most_bytes)

    def round(self) -> None:
        done = self._mirror.round(self.given_up)
        if done.trouble is not None:
            raise done.trouble
