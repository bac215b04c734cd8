"""The last output of tasks whose containers YARN killed.

Their executors have no time to keep it on the store themselves.
"""

from __future__ import annotations

import asyncio
import logging

from tony_provider.runtime import contract
from tony_provider.runtime.storage import Storage, StorageError, StorageExists, uris
from tony_provider.runtime.task_identity import TaskIdentity

log = logging.getLogger(__name__)

_TIMEOUT = 20.0  # seconds, at the end of the job


class LastOutputs:
    """Writes the last output of killed containers to the store. Used within a running event loop."""

    def __init__(self, storage: Storage, application_dir: str) -> None:
        self._storage = storage
        self._logs = uris.join(application_dir, contract.LOGS_DIR)
        self._keeping: set[asyncio.Future[None]] = set()
        self._kept: set[TaskIdentity] = set()

    def keep(self, identity: TaskIdentity, output: bytes) -> None:
        """Write the output soon, unless the executor has kept it all. Last words are said once."""
        if identity in self._kept:
            return
        self._kept.add(identity)
        uri = uris.join(self._logs, contract.log_name(identity.task, identity.attempt))
        keeping = asyncio.ensure_future(asyncio.to_thread(self._write, uri, output))
        self._keeping.add(keeping)
        keeping.add_done_callback(self._keeping.discard)

    async def close(self) -> None:
        """Wait a limited time for writes that are under way."""
        if self._keeping:
            await asyncio.wait(set(self._keeping), timeout=_TIMEOUT)

    def _write(self, uri: str, output: bytes) -> None:
        try:
            self._storage.write(uri, output)
        except StorageExists:
            return
        except StorageError as error:
            log.warning("the output of a killed container is lost: %s", error)
