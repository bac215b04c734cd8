"""Repeated work beside a user process, and once more at the end: never so that anybody waits for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

from tony_provider.runtime.deadline import within
from tony_provider.runtime.storage import StorageError

log = logging.getLogger(__name__)

_PAUSE = 5.0  # seconds between two rounds
_SHARE = 20.0  # a round that took t seconds is followed by a pause of so many times t: its load stays below 5 %
_LONGEST_PAUSE = 300.0


class Rounds(ABC):
    """Work that is done again and again in a thread of its own.

    Made within a running event loop. Trouble with the store or the disk is never more than a delay.
    """

    def __init__(self, name: str) -> None:
        """``name`` for its thread, which is one of its own: a store that hangs must not hold up other work."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._told = ""  # the last trouble, which is not told twice
        self.given_up = threading.Event()

    @abstractmethod
    def round(self) -> None:
        """Do the work once, in the thread. Soon over once ``given_up`` is set. Raises StorageError, OSError."""

    async def run(self) -> None:
        """Do round after round until it is cancelled; what is under way in the thread then goes on."""
        while True:
            began = time.monotonic()
            await self._round()
            await asyncio.sleep(min(max(_PAUSE, _SHARE * (time.monotonic() - began)), _LONGEST_PAUSE))

    async def finish(self, seconds: float) -> None:
        """Do one last round, after what is under way, within that time."""
        try:
            await within(self._round(), seconds)
        except asyncio.TimeoutError:
            log.warning("no time was left for the last event files")
        finally:
            self.given_up.set()
            self._pool.shutdown(wait=False)

    async def _round(self) -> None:
        if self.given_up.is_set():
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self.round)
        except (StorageError, OSError) as error:
            self._tell(str(error))
        except Exception:  # whatever a program left there: no fault of ours in reading it ends its training
            log.exception("a fault in the copying of event files itself")
        else:
            self._told = ""

    def _tell(self, trouble: str) -> None:
        if trouble != self._told:
            log.warning("event files were not copied: %s", trouble)
            self._told = trouble
