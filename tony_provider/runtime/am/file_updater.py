"""A file on the store that is kept up to date."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, Optional

from tony_provider.runtime.am.store_writer import StoreWriter
from tony_provider.runtime.storage import Storage, uris, write_atomically
from tony_provider.runtime.storage.base import Before, right_away


class FileUpdater(StoreWriter):
    """Writes one file whenever its content has changed. The newest content always wins.

    ``content`` takes what is to be written, on the loop, and gives what makes bytes of it, in a thread.
    """

    def __init__(
        self,
        storage: Storage,
        uri: str,
        content: Callable[[], Callable[[], bytes]],
        *,
        interval: Optional[float] = None,
        tell: Callable[[str, str], None] = lambda event, message: None,
        before_it_appears: Before = right_away,
    ) -> None:
        """``interval``, ``tell``: see StoreWriter; ``before_it_appears``: see Storage, called in a thread."""
        super().__init__(uris.name(uri), interval=interval, tell=tell)
        self._storage = storage
        self._uri = uri
        self._content = content
        self._before_it_appears = before_it_appears

    async def _store(self) -> None:
        await asyncio.to_thread(self._write, self._content())

    def _write(self, made: Callable[[], bytes]) -> None:
        began = time.monotonic()
        data = made()
        self._cost = time.monotonic() - began
        write_atomically(self._storage, self._uri, data, before_it_appears=self._before_it_appears)
