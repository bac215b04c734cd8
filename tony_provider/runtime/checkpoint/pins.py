"""Pins: files by which readers of a chain keep a checkpoint from being removed while they read it.

The owner of the chain may remove old checkpoints at any time, also while another training or a notebook copies one. A
reader pins a checkpoint first, and reads the manifest afterwards.
"""

from __future__ import annotations

import logging

from tony_provider.runtime import contract
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, StorageUnreachable, uris

log = logging.getLogger(__name__)

LONGEST = 6 * 3600.0  # seconds; then a pin ends, because its reader may have died


class Pins:
    """The pins of one chain. Methods block and raise StorageError."""

    def __init__(self, storage: Storage, chain_uri: str) -> None:
        self._storage = storage
        self._uri = uris.join(chain_uri, contract.PINS_DIR)

    def add(self, checkpoint: str, reader: str) -> None:
        """Pin a checkpoint by its name, or restart the time of the pin. ``reader``: unique, without dots.

        A reader that may not write into the chain sets no pin, so the checkpoint may vanish while the reader copies it.
        Raises StorageUnreachable.
        """
        try:
            self._storage.write(self._file(checkpoint, reader), b"", overwrite=True)
        except StorageUnreachable:
            raise
        except StorageError as error:
            log.warning("%s cannot be pinned, so it may be removed while it is copied: %s", checkpoint, error)

    def remove(self, checkpoint: str, reader: str) -> None:
        """Remove a pin. If that fails, the pin ends by itself."""
        try:
            self._storage.remove(self._file(checkpoint, reader))
        except StorageError as error:
            log.warning("the pin of %s on %s could not be removed, and ends by itself: %s", reader, checkpoint, error)

    def names(self) -> frozenset[str]:
        """Return the names of all pinned checkpoints, and remove the pins whose time is over."""
        try:
            found = self._storage.list(self._uri)
        except StorageNotFound:
            return frozenset()
        found = [status for status in found if "." in status.name]  # other files are not pins
        oldest_ms = epoch_ms() - LONGEST * 1000
        for status in found:
            if status.modified_ms < oldest_ms:
                self.remove(*status.name.split(".", 1))
        return frozenset(status.name.partition(".")[0] for status in found if status.modified_ms >= oldest_ms)

    def _file(self, checkpoint: str, reader: str) -> str:
        return uris.join(self._uri, f"{checkpoint}.{reader}")
