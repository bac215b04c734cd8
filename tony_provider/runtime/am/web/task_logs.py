"""HTTP handlers for task logs: the end of a log as text or page, and pieces of output for clients that follow it.

``GET logs/worker-0`` has the parameters ``bytes`` (size, default 64 KiB, at most 1 MiB) and ``attempt`` (number of the
container, counted from 1; default: the newest container). With ``as=text``, browsers also get plain text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Callable, Optional, TypeVar
from urllib.parse import parse_qs, quote

import attrs

from tony_provider.runtime.am import executor_messages
from tony_provider.runtime.am.gateway import ExecutorRequests, NoAnswerError
from tony_provider.runtime.am.web.page import Document, Html, element, wants_page
from tony_provider.runtime.am.web.server import JSON, HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.common import contract, quantities
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.contract import path_of_task
from tony_provider.runtime.common.text import (
    end_of_log,
    length_before_cut_secret,
    masked_bytes,
    printable,
    without_cut_secret,
)
from tony_provider.runtime.protocol import http_messages, limits, tony_pb2
from tony_provider.runtime.protocol.http_messages import LogPiece, OutputPiece, StoredLog, stored_log
from tony_provider.runtime.protocol.status import JobStatus, TaskState, TaskStatus
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, uris

LOGS_PATH = "/logs/"
OUTPUT_PATH = "/" + http_messages.OUTPUT_PATH
DEFAULT_SIZE = 64 << 10  # bytes
TEXT = "text/plain; charset=utf-8"

_LONGEST_NUMBER = 19  # digits
_MOST_AFTER = (1 << 63) - 1


class Logs:
    """The HTTP handlers of logs, and of output that clients follow. Requires a running event loop."""

    def __init__(self, status: Callable[[], JobStatus], tails: LogTails) -> None:
        self._status = status
        self._tails = tails
        self._page = LogPage()

    async def tail(self, request: HttpRequest) -> HttpResponse:
        task, query, size, attempt = self._wanted(request, LOGS_PATH)
        read = self._tails.current if attempt == task.attempt else self._tails.former
        try:
            data = await read(task.name, attempt, size)
        except NoTailError as error:
            raise HttpError(HTTPStatus.NOT_FOUND, str(error)) from error
        data = await asyncio.to_thread(self._tails.masked_end, data)
        data = data or f"[tony] {task.name} has printed no output so far\n".encode()
        if _is_for_eyes(request):
            data = await asyncio.to_thread(_readable, data)
        if not wants_page(request.head) or query.get("as") == ["text"]:
            return HttpResponse(HTTPStatus.OK, TEXT, data)
        growing = attempt == task.attempt and not task.state.is_final
        path = quote(path_of_task(task.name), safe="")
        view = LogView(task.name, path, attempt, size, data.decode("utf-8", "replace"), growing)
        return await asyncio.to_thread(self._page.response, view)

    async def piece(self, request: HttpRequest) -> HttpResponse:
        task, query, size, attempt = self._wanted(request, OUTPUT_PATH)
        after = number_of(query, "after", _MOST_AFTER, least=0) or 0
        try:
            if attempt == task.attempt:
                found = await self._tails.current_after(task.name, attempt, after, size)
                found = await asyncio.to_thread(self._tails.before_cut_secret, found)
            else:
                found = await self._tails.former_after(task.name, attempt, after, size)
        except NoTailError as error:
            answer = OutputPiece(attempt, task.attempt, after, after, problem=str(error))
        else:
            # Without ``after``, a piece begins with a whole line. With ``after``, it may begin within a secret.
            masked = self._tails.masked_end if after else self._tails.masked
            text = await asyncio.to_thread(masked, found.data)
            answer = OutputPiece(attempt, task.attempt, found.start, found.end, text.decode("utf-8", "surrogateescape"))
        body = await asyncio.to_thread(lambda: json.dumps(to_plain(answer)).encode())
        return HttpResponse(HTTPStatus.OK, JSON, body)

    def _wanted(self, request: HttpRequest, path: str) -> tuple[TaskStatus, dict[str, list[str]], int, int]:
        """Parse a request below ``path``: return its task, its query, the wanted bytes, and the wanted attempt.

        The attempt of the returned task is its newest container that was started.
        """
        task = task_of(self._status(), request.head.path[len(path) :])
        query = parse_qs(request.head.query)
        size = number_of(query, "bytes", LARGEST_TAIL) or DEFAULT_SIZE
        attempt = number_of(query, "attempt", task.attempt)
        if task.state is TaskState.REQUESTED and task.attempt > 1:  # such as in a suspended job
            task = attrs.evolve(task, attempt=task.attempt - 1)
        return task, query, size, attempt or task.attempt


def _is_for_eyes(request: HttpRequest) -> bool:
    """Return whether a person reads the answer: in a browser, or through the page's script, which requests text.

    Other clients remove control characters themselves.
    """
    return wants_page(request.head) or any("text/plain" in value for value in request.head.values("accept"))


def _readable(data: bytes) -> bytes:
    """Return the text without invisible characters. Carriage returns become line breaks."""
    return printable(data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")).encode()


def task_of(status: JobStatus, path: str) -> TaskStatus:
    """Return the task whose log has this path. Raises HttpError if there is none."""
    for task in status.tasks:
        if path in (path_of_task(task.name), task.name):
            return task
    known = ", ".join(task.name for task in status.tasks[:5])
    more = ", …" * (len(status.tasks) > 5)
    raise HttpError(HTTPStatus.NOT_FOUND, f"there is no such task; the tasks of the job are {known}{more}")


def number_of(query: dict[str, list[str]], name: str, most: int, least: int = 1) -> Optional[int]:
    """Return a number from the query, or None if the query lacks it. Raises HttpError if the value is invalid."""
    if name not in query:
        return None
    text = query[name][-1]
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and least <= int(text) <= most:
        return int(text)
    raise HttpError(HTTPStatus.BAD_REQUEST, f"{name}: must be a number from {least} to {most}")


T = TypeVar("T")

LARGEST_TAIL = limits.LOG_TAIL
_AT_ONCE = 4  # limit of concurrent reads, for the memory of the master and of executors
_EXECUTOR_SECONDS = 5.0
_STORE_SECONDS = 15.0


class NoTailError(Exception):
    """The end of a log is not available. The message explains why."""


class LogTails:
    """Reads the end of a task's output. Requires a running event loop, and ``close`` at the end.

    ``secrets`` are the values that are masked in the output.
    """

    def __init__(
        self,
        executor_requests: ExecutorRequests,
        storage: Storage,
        application_dir: str,
        secrets: Sequence[str] = (),
        unstored: Callable[[str], Optional[StoredLog]] = lambda _: None,
    ) -> None:
        """``unstored`` returns a log by its name if the master has not stored it yet."""
        self._unstored = unstored
        self._executor_requests = executor_requests
        self._storage = storage
        self._secrets = tuple(secrets)
        self._logs = uris.join(application_dir, contract.LOGS_DIR)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        # Separate threads, so that an unresponsive store delays only log readers, not the master's own work.
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tails")

    async def current(self, task: str, attempt: int, size: int) -> bytes:
        """Return the end of the log of the task's newest container: at most ``size`` bytes, from the start of a line.

        Raises NoTailError.
        """
        async with self._turn:
            try:
                return (await self._answer(task, size)).data
            except NoAnswerError as error:
                problem = str(error)
            kept = await self._read(task, attempt, size)
        if kept is None:
            raise NoTailError(f"{problem}, and no log of attempt {attempt} was stored")
        return kept

    async def former(self, task: str, attempt: int, size: int) -> bytes:
        """Return the end of the log of a former container, like ``current``."""
        async with self._turn:
            kept = await self._read(task, attempt, size)
        if kept is None:
            raise NoTailError(f"no log of attempt {attempt} of {task} was stored: its container ended too early")
        return kept

    async def current_after(self, task: str, attempt: int, after: int, size: int) -> LogPiece:
        """Return the newest container's output after the first ``after`` bytes, limited to its last ``size`` bytes.

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
        """Return the stored output of an ended container after the first ``after`` bytes.

        ``problem`` explains why the executor did not answer. Raises NoTailError.
        """
        async with self._turn:
            kept = await self._kept(task, attempt, lambda log: log.after(after, size))
        if kept is None:
            raise NoTailError(f"{problem}{', and ' if problem else ''}no log of attempt {attempt} of {task} was stored")
        return kept

    def masked(self, data: bytes) -> bytes:
        """Return a piece of a log with masked secrets."""
        return masked_bytes(data, self._secrets)

    def masked_end(self, data: bytes) -> bytes:
        """Return the end of a log with masked secrets. If the text begins inside a secret, that part is removed."""
        return masked_bytes(without_cut_secret(data, self._secrets), self._secrets)

    def before_cut_secret(self, piece: LogPiece) -> LogPiece:
        """Return the piece without a partial secret at its end, because only whole secrets can be masked.

        The next piece contains the whole secret.
        """
        return LogPiece(piece.start, piece.data[: length_before_cut_secret(piece.data, self._secrets)])

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _answer(self, task: str, size: int, after: Optional[int] = None) -> tony_pb2.Tail:
        """Return the executor's answer. Raises NoAnswerError, NoTailError."""
        answer = await self._executor_requests.ask(
            task, partial(executor_messages.tail_wanted, size=size, after=after), _EXECUTOR_SECONDS
        )
        if answer.tail.problem:
            raise NoTailError(f"the log of {task} cannot be read on its node: {answer.tail.problem}")
        return answer.tail

    async def _read(self, task: str, attempt: int, size: int) -> Optional[bytes]:
        return await self._kept(
            task, attempt, lambda log: end_of_log(log.read(max(0, log.size - size - 1), size + 1), size)
        )

    async def _kept(self, task: str, attempt: int, read: Callable[[StoredLog], T]) -> Optional[T]:
        """Return what ``read`` reads from the stored log, or None if no log was stored. Raises NoTailError."""
        name = contract.log_name(task, attempt)

        def found() -> T:
            return read(self._unstored(name) or stored_log(self._storage, self._logs, name))

        reading = asyncio.get_running_loop().run_in_executor(self._threads, found)
        try:
            return await wait_with_timeout(reading, _STORE_SECONDS)
        except StorageNotFound:
            return None
        except asyncio.TimeoutError as error:
            raise NoTailError(
                f"the store did not return {uris.join(self._logs, name)} within {_STORE_SECONDS:g} s"
            ) from error
        except StorageError as error:
            raise NoTailError(str(error)) from error


_SIZES = (64 << 10, 256 << 10, 1 << 20)  # bytes; the last is the limit


@attrs.frozen
class LogView:
    """The end of a task's log, with facts for its page."""

    task: str
    path: str  # relative to the page itself
    attempt: int
    size: int  # maximum size of ``text`` in bytes
    text: str
    growing: bool  # more output may follow


class LogPage:
    """Makes the page of a task's log."""

    def __init__(self) -> None:
        self._document = Document(script="log.js")

    def response(self, view: LogView) -> HttpResponse:
        """Return the page. Its links are relative to its own address, one level below the job's page."""
        every = limits.HEARTBEAT_INTERVAL if view.growing else 0
        head = element(
            "section",
            element("nav", *_ways(view)),
            element("h1", view.task, " ", element("small", f"container {view.attempt}")),
            id="head",
        )
        text = element("section", element("pre", "\n", view.text), id="log")  # HTML ignores the first line break
        footer = element("footer", element("span", id="note", role="status"))
        return self._document.response(
            HTTPStatus.OK, f"{view.task} log", element("main", head, text), footer, data_every=f"{every:g}"
        )


def _ways(view: LogView) -> list[Html]:
    attempt = f"&attempt={view.attempt}"
    sizes = (
        element(
            "a",
            f"Last {quantities.size(size)}",
            href=f"{view.path}?bytes={size}{attempt}",
            aria_current="page" if size == view.size else None,
        )
        for size in _SIZES
    )
    text = element("a", "Plain text", href=f"{view.path}?bytes={view.size}{attempt}&as=text")
    return [element("a", "Job page", href="../"), *sizes, text]
