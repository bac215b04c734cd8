"""One HTTP request and its answer, whatever the other side sends, or does not send: bounded in size and in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Callable, Optional
from urllib.parse import unquote

import h11

from tony_provider.runtime.am.web.http_messages import Head, HttpError, HttpResponse
from tony_provider.runtime.deadline import within

log = logging.getLogger(__name__)

MOST_HEAD = 16 << 10  # bytes
MOST_BODY = 64 << 10  # bytes; the largest is an order to stop
_CHUNK = 16 << 10  # bytes
_HEAD_SECONDS = 10.0  # for the whole head, however slowly it trickles
_BODY_SECONDS = 10.0
_ANSWER_SECONDS = 30.0  # for our own part, with the reading of the body
_SEND_SECONDS = 20.0
_LINGER_SECONDS = 2.0  # for the other side to close too: closing on what it still sends could take our answer from it

ReadBody = Callable[[], Awaitable[bytes]]
Answer = Callable[[str, Head, ReadBody], Awaitable[HttpResponse]]
"""Given the address that a request comes from, its head, and how to read its body; may raise HttpError."""

_COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}


class _BrokenOff(Exception):  # noqa: N818
    """The other side is gone."""


class Connection:
    """One HTTP connection, closed after one request.

    YARN's proxy opens one for each, and nothing is left to wait for.
    """

    def __init__(self, source: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._answer = answer
        writer.transport.set_write_buffer_limits(0)  # so that drained is sent
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._is_head = False

    async def serve(self) -> None:
        """Read the request and answer it, until the connection is closed. Raises only CancelledError."""
        try:
            response = await self._respond()
            if response:
                await within(self._send(response), _SEND_SECONDS)
                await self._close()
        except (_BrokenOff, OSError, asyncio.TimeoutError) as error:
            log.debug("a connection broke off: %r", error)
        finally:
            if not self._writer.is_closing():
                self._writer.transport.abort()  # nothing is left to be sent, or nobody takes it

    async def _respond(self) -> Optional[HttpResponse]:
        """None: nothing was asked. Raises _BrokenOff."""
        try:
            head = await self._head()
            if head is None:
                return None
            return await within(self._answer(self._source, head, self._body), _ANSWER_SECONDS)
        except HttpError as error:
            return error.response()
        except h11.RemoteProtocolError as error:
            return HttpError(error.error_status_hint, f"this is no HTTP/1.1: {error}").response()
        except asyncio.TimeoutError:
            return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "the application master is too busy").response()
        except _BrokenOff:
            raise
        except Exception:
            log.exception("a request could not be answered")
            return HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault; the master's log says more").response()

    # ---- receiving ---------------------------------------------------------------------------------------------

    async def _head(self) -> Optional[Head]:
        event = await self._next(_deadline(_HEAD_SECONDS))
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        path, _, query = event.target.decode("latin-1").partition("?")
        return Head(
            method=event.method.decode("latin-1"),
            path=unquote(path, errors="replace"),
            query=query,
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers),
        )

    async def _body(self) -> bytes:
        """Raises HttpError, h11.RemoteProtocolError, _BrokenOff."""
        deadline = _deadline(_BODY_SECONDS)
        body = bytearray()
        while isinstance(event := await self._next(deadline), h11.Data):
            body += event.data
            if len(body) > MOST_BODY:
                raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BODY} bytes")
        return bytes(body)

    async def _next(self, deadline: float) -> object:
        """h11's next event."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
                self._writer.write(self._http.send(go_on) or b"")
            self._http.receive_data(await self._read(deadline))

    async def _read(self, deadline: float) -> bytes:
        try:
            return await within(self._reader.read(_CHUNK), deadline - asyncio.get_running_loop().time())
        except asyncio.TimeoutError as error:
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "the request did not come in time") from error
        except OSError as error:
            raise _BrokenOff(str(error)) from error

    # ---- answering ---------------------------------------------------------------------------------------------

    async def _send(self, response: HttpResponse) -> None:
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **_COMMON_HEADERS,
            **response.headers,
        }
        self._write(h11.Response(status_code=response.status, headers=list(headers.items())))
        if not self._is_head:
            self._write(h11.Data(data=response.body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def _close(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
            await within(self._until_closed(), _LINGER_SECONDS)
        else:  # TLS, which has a goodbye of its own
            self._writer.close()
            await within(self._writer.wait_closed(), _LINGER_SECONDS)

    async def _until_closed(self) -> None:
        while await self._reader.read(_CHUNK):
            pass


def _deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
