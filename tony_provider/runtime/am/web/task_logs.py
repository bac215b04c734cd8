"""``GET logs/worker-0``: the end of what a task has printed, as plain text, or for browsers on a page.

``?bytes=`` says how much of it (default 64 KiB, at most 1 MiB), ``?attempt=`` of which of its containers, counted
from 1 (default: the newest). ``?as=text`` gives browsers the text, too.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Callable, Optional
from urllib.parse import parse_qs, quote

from tony_provider.runtime.am.log_tails import LARGEST, LogTails, NoTailError
from tony_provider.runtime.am.web.http_messages import HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.am.web.page.log_page import LogPage, LogView
from tony_provider.runtime.am.web.page.refusal import wants_page
from tony_provider.runtime.contract import path_of_task
from tony_provider.runtime.protocol.status import JobStatus, TaskStatus
from tony_provider.runtime.text import printable

PATH = "/logs/"
DEFAULT_SIZE = 64 << 10  # bytes
TEXT = "text/plain; charset=utf-8"

_LONGEST_NUMBER = 19  # digits


class Logs:
    """The HTTP handler of logs. Used within a running event loop."""

    def __init__(self, status: Callable[[], JobStatus], tails: LogTails) -> None:
        self._status = status
        self._tails = tails
        self._page = LogPage()

    async def tail(self, request: HttpRequest) -> HttpResponse:
        task = task_of(self._status(), request.head.path[len(PATH) :])
        query = parse_qs(request.head.query)
        size = number_of(query, "bytes", LARGEST) or DEFAULT_SIZE
        attempt = number_of(query, "attempt", task.attempt) or task.attempt
        read = self._tails.current if attempt == task.attempt else self._tails.former
        try:
            data = await read(task.name, attempt, size)
        except NoTailError as error:
            raise HttpError(HTTPStatus.NOT_FOUND, str(error)) from error
        data = await asyncio.to_thread(self._tails.masked_end, data)
        data = data or f"[tony] {task.name} has printed nothing so far\n".encode()
        if _is_for_eyes(request):
            data = await asyncio.to_thread(_readable, data)
        if not wants_page(request.head) or query.get("as") == ["text"]:
            return HttpResponse(HTTPStatus.OK, TEXT, data)
        growing = attempt == task.attempt and not task.state.is_final
        path = quote(path_of_task(task.name), safe="")
        view = LogView(task.name, path, attempt, size, data.decode("utf-8", "replace"), growing)
        return await asyncio.to_thread(self._page.response, view)


def _is_for_eyes(request: HttpRequest) -> bool:
    """Whether a browser asks, or its page's script, which asks for text: whoever else asks sees to that."""
    return wants_page(request.head) or any("text/plain" in value for value in request.head.values("accept"))


def _readable(data: bytes) -> bytes:
    """Each line that was drawn again is one of its own; without what nothing shows."""
    return printable(data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")).encode()


def task_of(status: JobStatus, path: str) -> TaskStatus:
    """The task whose log has this path. Raises HttpError when there is none."""
    for task in status.tasks:
        if path in (path_of_task(task.name), task.name):
            return task
    known = ", ".join(path_of_task(task.name) for task in status.tasks[:5])
    more = ", …" * (len(status.tasks) > 5)
    raise HttpError(HTTPStatus.NOT_FOUND, f"there is no such task; its tasks are {known}{more}")


def number_of(query: dict[str, list[str]], name: str, most: int, least: int = 1) -> Optional[int]:
    """A number of the query; None: it is not given. Raises HttpError for any that it cannot be."""
    if name not in query:
        return None
    text = query[name][-1]
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and least <= int(text) <= most:
        return int(text)
    raise HttpError(HTTPStatus.BAD_REQUEST, f"{name}: a number from {least} to {most}")
