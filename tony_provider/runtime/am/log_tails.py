"""The end of a task's log: from its executor while it is there, else what that has kept on the store."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.executor_requests import ExecutorRequests, NoAnswerError
from tony_provider.runtime.deadline import within
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, read_bytes, uris
from tony_provider.runtime.text import end_of_log

LARGEST = 1 << 20  # bytes
_AT_ONCE = 4  # tails, asked or read: so much memory of the master and of an executor, and no more
_EXECUTOR_SECONDS = 5.0
_STORE_SECONDS = 15.0


class NoTailError(Exception):
    """There is no end of a log to show now; the message says why."""


class LogTails:
    """Finds the end of what a task has printed. Made within a running event loop; close it."""

    def __init__(self, executor_requests: ExecutorRequests, storage: Storage, application_dir: str) -> None:
        self._executor_requests = executor_requests
        self._storage = storage
        self._logs = uris.join(application_dir, contract.LOGS_DIR)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        # Threads of its own: a store that hangs keeps those who look waiting, and not the master's own work.
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tails")

    async def current(self, task: str, attempt: int, size: int) -> bytes:
        """The log's end in a task's newest container, from the start of a line: at most ``size`` bytes.

        Raises NoTailError.
        """
        async with self._turn:
            try:
                return await self._ask(task, size)
            except NoAnswerError as error:
                problem = str(error)
            kept = await self._read(task, attempt, size)
        if kept is None:
            raise NoTailError(f"{problem}, and no log was kept of attempt {attempt}")
        return kept

    async def former(self, task: str, attempt: int, size: int) -> bytes:
        """The log's end in a container that the task had before, as ``current`` gives it."""
        async with self._turn:
            kept = await self._read(task, attempt, size)
        if kept is None:
            raise NoTailError(f"no log was kept of attempt {attempt} of {task}: its container had no time for that")
        return kept

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _ask(self, task: str, size: int) -> bytes:
        """Raises NoAnswerError, NoTailError."""
        answer = await self._executor_requests.ask(
            task, partial(wire_messages.tail_wanted, size=size), _EXECUTOR_SECONDS
        )
        if answer.tail.problem:
            raise NoTailError(f"the log of {task} cannot be read on its node: {answer.tail.problem}")
        return answer.tail.data

    async def _read(self, task: str, attempt: int, size: int) -> Optional[bytes]:
        """None: none was kept. Raises NoTailError."""
        uri = uris.join(self._logs, contract.log_name(task, attempt))
        reading = asyncio.get_running_loop().run_in_executor(self._threads, _end_of_file, self._storage, uri, size)
        try:
            return await within(reading, _STORE_SECONDS)
        except StorageNotFound:
            return None
        except asyncio.TimeoutError as error:
            raise NoTailError(f"the store did not give {uri} within {_STORE_SECONDS:g} s") from error
        except StorageError as error:
            raise NoTailError(str(error)) from error


def _end_of_file(storage: Storage, uri: str, size: int) -> bytes:
    whole = storage.status(uri).size
    return end_of_log(read_bytes(storage, uri, offset=max(0, whole - size - 1), length=size + 1), size)
