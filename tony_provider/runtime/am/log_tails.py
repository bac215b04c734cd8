"""The end of a task's log: from its executor while it is there, else what that has kept on the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, Optional, TypeVar

from tony_provider.runtime import contract
from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.executor_requests import ExecutorRequests, NoAnswerError
from tony_provider.runtime.deadline import within
from tony_provider.runtime.kept_log import LogPiece, read_kept
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, read_bytes, uris
from tony_provider.runtime.text import end_of_log, length_before_cut_secret, masked_bytes, without_cut_secret

T = TypeVar("T")

LARGEST = limits.LOG_TAIL
_AT_ONCE = 4  # tails, asked or read: so much memory of the master and of an executor, and no more
_EXECUTOR_SECONDS = 5.0
_STORE_SECONDS = 15.0


class NoTailError(Exception):
    """There is no end of a log to show now; the message says why."""


class LogTails:
    """Finds the end of what a task has printed. Made within a running event loop; close it.

    ``secrets`` are the values that are masked in what is shown of it.
    """

    def __init__(
        self,
        executor_requests: ExecutorRequests,
        storage: Storage,
        application_dir: str,
        secrets: Sequence[str] = (),
    ) -> None:
        self._executor_requests = executor_requests
        self._storage = storage
        self._secrets = tuple(secrets)
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

    async def current_after(self, task: str, attempt: int, after: int, size: int) -> LogPiece:
        """What the task's newest container has printed after so many bytes: at most the last ``size`` of it.

        Raises NoTailError.
        """
        async with self._turn:
            try:
                tail = await self._answer(task, size, after)
            except NoAnswerError as error:
                problem = str(error)
            else:
                return LogPiece(tail.end - len(tail.data), tail.data)
        return await self.former_after(task, attempt, after, size, problem)

    async def former_after(self, task: str, attempt: int, after: int, size: int, problem: str = "") -> LogPiece:
        """What a container that has ended had printed after so many bytes, of whose log the end was kept.

        ``problem``: why its executor was asked in vain. Raises NoTailError.
        """
        async with self._turn:
            kept = await self._kept(task, attempt, partial(_read_after, after=after, size=size))
        if kept is None:
            raise NoTailError(f"{problem}{', and ' if problem else ''}no log was kept of attempt {attempt} of {task}")
        return kept

    def masked(self, data: bytes) -> bytes:
        """A piece of a log as it may be shown."""
        return masked_bytes(data, self._secrets)

    def masked_end(self, data: bytes) -> bytes:
        """The end of a log as it may be shown: where it was cut, it may begin with the half of a secret."""
        return masked_bytes(without_cut_secret(data, self._secrets), self._secrets)

    def before_cut_secret(self, piece: LogPiece) -> LogPiece:
        """The piece without the beginning of a secret at its end: nobody could mask that; it comes with the next."""
        return LogPiece(piece.start, piece.data[: length_before_cut_secret(piece.data, self._secrets)])

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _ask(self, task: str, size: int) -> bytes:
        return (await self._answer(task, size)).data

    async def _answer(self, task: str, size: int, after: Optional[int] = None) -> tony_pb2.Tail:
        """Raises NoAnswerError, NoTailError."""
        answer = await self._executor_requests.ask(
            task, partial(wire_messages.tail_wanted, size=size, after=after), _EXECUTOR_SECONDS
        )
        if answer.tail.problem:
            raise NoTailError(f"the log of {task} cannot be read on its node: {answer.tail.problem}")
        return answer.tail

    async def _read(self, task: str, attempt: int, size: int) -> Optional[bytes]:
        return await self._kept(task, attempt, partial(_end_of_file, size=size))

    async def _kept(self, task: str, attempt: int, read: Callable[[Storage, str], T]) -> Optional[T]:
        """What is read of the log that was kept; None: none was. Raises NoTailError."""
        uri = uris.join(self._logs, contract.log_name(task, attempt))
        reading = asyncio.get_running_loop().run_in_executor(self._threads, read, self._storage, uri)
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


def _read_after(storage: Storage, uri: str, after: int, size: int) -> LogPiece:
    return read_kept(storage, uri, after, size)
