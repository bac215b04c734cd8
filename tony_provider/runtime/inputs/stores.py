"""The stores that the shards of a job's inputs are in."""

from __future__ import annotations

import threading

from tony_provider.runtime.storage import Storage, open_storage, uris


class InputStores:
    """Opens each store once: the job's own, the machine's disk, or fsspec's of a scheme."""

    def __init__(self, own: Storage, own_uri: str) -> None:
        """``own`` is the store that ``own_uri`` is in; it stays open."""
        self._by_scheme = {uris.scheme(own_uri): own}
        self._opened: list[Storage] = []
        self._lock = threading.Lock()

    def of(self, uri: str) -> Storage:
        """The store of a URI. Raises StorageUnsupported for a scheme that no installed driver knows."""
        scheme = uris.scheme(uri)
        with self._lock:
            if scheme not in self._by_scheme:
                opened = open_storage(uri)
                self._opened.append(opened)
                self._by_scheme[scheme] = opened
            return self._by_scheme[scheme]

    def close(self) -> None:
        """Close what was opened here."""
        for storage in self._opened:
            storage.close()
