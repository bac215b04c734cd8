"""The upload of what a user process has left, tried again and again: what it has cost is worth more than the wait."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Callable, TypeVar

from tony_provider.runtime import clock
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.return_value import ReturnedError
from tony_provider.runtime.executor.tree_upload import UploadCancelledError
from tony_provider.runtime.retrying import pauses
from tony_provider.runtime.storage import StorageError, StorageInvalidPath, StorageUnsupported

log = logging.getLogger(__name__)

T = TypeVar("T")

_CANCEL_TIMEOUT = 5.0  # seconds for an upload that was told to stop to clear away what it has made
_FIRST_PAUSE = 2.0  # seconds between the first tries, doubled up to
_LONGEST_PAUSE = 60.0
_FINAL = (ReturnedError, OSError, StorageInvalidPath, StorageUnsupported)  # again it would be the same


class NotKeptError(Exception):
    """What a process that has ended well left could not be kept. To run it again would not mend that."""


class UploadRetries:
    """The tries of one start of the user process, for ``timeouts.upload`` each."""

    def __init__(self, context: ExecutorContext, stopping: ProcessStop) -> None:
        self.activity = ""  # for people; empty while nothing is tried again
        self.trouble = ""  # likewise, once for all tries
        self._context = context
        self._stopping = stopping

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, which blocks, and raises UploadCancelledError soon once the start is told to stop.

        Raises NotKeptError, and UploadCancelledError.
        """
        deadline = time.monotonic() + self._context.container.job.timeouts.upload
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            try:
                return await self._try(work)
            except _FINAL as error:
                raise NotKeptError(f"what it left cannot be kept: {error}") from error
            except StorageError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NotKeptError(self._given_up(error)) from error
                self._tell(error, left)
            finally:
                self.activity = ""
            self.activity = "waiting for the store, to keep its results"
            await self._pause(min(pause, left))
        raise AssertionError

    async def _try(self, work: Callable[[], T]) -> T:
        uploading = asyncio.ensure_future(asyncio.to_thread(work))
        if not await self._stopping.bound(uploading, lambda: self._stopping.asked_at + _CANCEL_TIMEOUT):
            raise UploadCancelledError("the upload did not end when it was told to")
        result = uploading.result()
        self.trouble = ""
        return result

    async def _pause(self, seconds: float) -> None:
        """Raises UploadCancelledError."""
        with suppress(asyncio.TimeoutError):
            await within(self._stopping.wait(), seconds)
        if self._stopping.asked:
            raise UploadCancelledError("told to stop while it waited for the store")

    def _tell(self, error: StorageError, left: float) -> None:
        log.warning("the results are not on the store yet, trying for %.0f s more: %s", left, error)
        if not self.trouble:
            until = clock.time_of_day(clock.epoch_ms() + round(left * 1000))
            self.trouble = f"its results do not get to the store, tried again until {until}: {error}"

    def _given_up(self, error: StorageError) -> str:
        context = self._context
        return (
            f"what it left could not be kept within {context.container.job.timeouts.upload:g} s (timeouts.upload): "
            f"{error}. It is in {context.workspace.root} on {context.container.node_host}, until YARN removes the "
            "directory of the container"
        )
