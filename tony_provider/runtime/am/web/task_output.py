"""``GET output/worker-0``: what a task has printed since the last look, for programs that follow it.

``?after=`` says how many bytes of it are known (default 0), ``?bytes=`` how many of the rest are wanted, its last ones
(default 64 KiB, at most 1 MiB), ``?attempt=`` in which of its containers (default: the newest). The answer is an
``OutputPiece`` as JSON.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Callable
from urllib.parse import parse_qs

from tony_provider.runtime.am.log_tails import LARGEST, LogTails, NoTailError
from tony_provider.runtime.am.web.http_messages import JSON, HttpRequest, HttpResponse
from tony_provider.runtime.am.web.task_logs import DEFAULT_SIZE, number_of, task_of
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol import output_piece
from tony_provider.runtime.protocol.output_piece import OutputPiece
from tony_provider.runtime.protocol.status import JobStatus

PATH = "/" + output_piece.PATH
_MOST_AFTER = (1 << 63) - 1


class TaskOutput:
    """The HTTP handler of output that is followed. Used within a running event loop."""

    def __init__(self, status: Callable[[], JobStatus], tails: LogTails) -> None:
        self._status = status
        self._tails = tails

    async def piece(self, request: HttpRequest) -> HttpResponse:
        task = task_of(self._status(), request.head.path[len(PATH) :])
        query = parse_qs(request.head.query)
        size = number_of(query, "bytes", LARGEST) or DEFAULT_SIZE
        attempt = number_of(query, "attempt", task.attempt) or task.attempt
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
            # Whoever follows begins where a piece has ended; anybody may begin in the middle of a secret.
            masked = self._tails.masked_end if after else self._tails.masked
            text = await asyncio.to_thread(masked, found.data)
            answer = OutputPiece(attempt, task.attempt, found.start, found.end, text.decode("utf-8", "surrogateescape"))
        body = await asyncio.to_thread(lambda: json.dumps(to_plain(answer)).encode())
        return HttpResponse(HTTPStatus.OK, JSON, body)
