"""Event files that the user processes of one container write, on their way to the store."""

from __future__ import annotations

import logging
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.executor.tensorboard.event_files import MOST_BYTES, MOST_FILES, FoundEventFiles, below
from tony_provider.runtime.executor.tensorboard.rounds import Rounds
from tony_provider.runtime.storage import Storage, StorageError, StorageUnreachable, upload, uris
from tony_provider.runtime.text import is_writable

log = logging.getLogger(__name__)


class Keeper(Rounds):
    """Copies a container's event files to the store: each whose size or time is new, whole.

    Nothing is ever removed from the store.
    """

    def __init__(self, storage: Storage, directory: Path, target: str, most_bytes: int = MOST_BYTES) -> None:
        """Copy from ``directory`` to ``target``, a URI, both with what is below them."""
        super().__init__("event-files")
        self._storage = storage
        self._directory = directory
        self._target = target
        self._most_bytes = most_bytes
        self._kept: dict[str, FoundEventFiles] = {}
        self._left_out: set[str] = set()

    def round(self) -> None:
        trouble = None
        for found in below(self._directory):
            if self.given_up.is_set():
                return
            if self._kept.get(found.name) == found or not self._is_allowed(found):
                continue
            try:
                upload(self._storage, found.path, uris.join(self._target, found.name), overwrite=True)
            except FileNotFoundError:
                continue
            except StorageUnreachable:
                raise
            except (StorageError, OSError) as error:  # of this one: the others may get there
                trouble = error
            else:
                self._kept[found.name] = found
        if trouble is not None:
            raise trouble

    def _is_allowed(self, found: FoundEventFiles) -> bool:
        others = sum(kept.size for name, kept in self._kept.items() if name != found.name)
        fits = others + found.size <= self._most_bytes and len(self._kept.keys() | {found.name}) <= MOST_FILES
        if fits and is_writable(found.name):
            return True
        if found.name not in self._left_out and len(self._left_out) < MOST_FILES:
            self._left_out.add(found.name)
            why = f"a task's may have {self._most_bytes} bytes in {MOST_FILES} files" if not fits else "a name in UTF-8"
            log.warning("%r in %s is not kept: %s", found.name, contract.ENV_TENSORBOARD_DIR, why)
        return False
