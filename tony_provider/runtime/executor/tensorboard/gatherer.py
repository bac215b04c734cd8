"""The event files of all tasks, from the store into the directory that TensorBoard reads."""

from __future__ import annotations

import shutil
from pathlib import Path

from tony_provider.runtime.executor.tensorboard.event_files import is_event_file
from tony_provider.runtime.executor.tensorboard.rounds import Rounds
from tony_provider.runtime.storage import FileStatus, Storage, StorageNotFound, download, walk
from tony_provider.runtime.storage.base import CHUNK, is_temporary

MOST_BYTES = 8 << 30  # on this node's disk; what comes later is left out


class Gatherer(Rounds):
    """Copies what is new of all tasks' event files from the store.

    Event files grow here as they do there: TensorBoard reads on in a file that it has open.
    """

    def __init__(self, storage: Storage, source: str, directory: Path, most_bytes: int = MOST_BYTES) -> None:
        """Copy from ``source``, a URI, to ``directory``, both with what is below them."""
        super().__init__("event-files")
        self._storage = storage
        self._source = source
        self._directory = directory
        self._most_bytes = most_bytes
        self._gathered: dict[str, tuple[int, int]] = {}  # size and time on the store, by name

    def round(self) -> None:
        try:
            found = [status for status in walk(self._storage, self._source) if not status.is_directory]
        except StorageNotFound:
            return  # nobody has written anything yet
        for status in found:
            if self.given_up.is_set():
                return
            name = status.path[len(self._source.rstrip("/")) + 1 :]
            state = (status.size, status.modified_ms)
            if self._gathered.get(name) == state or is_temporary(status.name) or not self._has_room(name, status.size):
                continue
            try:
                self._fetch(status, self._directory / name)
            except StorageNotFound:
                continue
            self._gathered[name] = state

    def _has_room(self, name: str, size: int) -> bool:
        others = sum(size for other, (size, _) in self._gathered.items() if other != name)
        return others + size <= self._most_bytes

    def _fetch(self, status: FileStatus, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        there = local.stat().st_size if local.exists() else 0
        if not is_event_file(local.name) or there > status.size:
            download(self._storage, status.path, local)
            return
        with self._storage.open_read(status.path, offset=there) as source, local.open("ab") as target:
            shutil.copyfileobj(source, target, CHUNK)
