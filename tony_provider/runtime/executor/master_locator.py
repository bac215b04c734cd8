"""Where the application master listens: what the container was launched with, later what a newer master left."""

from __future__ import annotations

import asyncio
import logging

from tony_provider.runtime import contract, master_address
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.storage import Storage, StorageError

log = logging.getLogger(__name__)

_PATIENCE = 10.0  # seconds for the store; the address known so far is to be tried meanwhile, too


class MasterLocator:
    """The application master's address: the one from the launch, later that which a newer master left."""

    def __init__(self, container: ExecutorContainer, storage: Storage) -> None:
        self.address = container.master
        self._attempt = 0  # of the application master at that address, 0: not known
        self._storage = storage
        self._directory = container.description.application_dir
        self._key = container.secrets.get(contract.SECRET_ADDRESS_KEY)

    def met(self, attempt: int) -> None:
        """Record which attempt the master at the address has said it is."""
        self._attempt = max(self._attempt, attempt)

    async def look(self) -> bool:
        """Look on the store for a newer master's address; returns whether there is one.

        From then on it is ``address``.
        """
        if self._key is None:
            return False
        reading = asyncio.to_thread(master_address.read, self._storage, self._directory, self._key)
        try:
            found = await within(reading, _PATIENCE)
        except (asyncio.TimeoutError, StorageError) as error:
            log.warning("where the application master is could not be read: %s", str(error) or "no answer in time")
            return False
        if found is None or found.attempt <= self._attempt or str(found.address) == self.address:
            return False
        log.info("application master %d is at %s", found.attempt, found.address)
        self.address, self._attempt = str(found.address), found.attempt
        return True
