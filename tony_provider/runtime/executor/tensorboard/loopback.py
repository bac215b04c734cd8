"""One request to an HTTP server on this node's loopback: bounded in size, and in time by whoever waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
import h11

from tony_provider.runtime.executor.peers import NotThereError, expect_own

_CHUNK = 64 << 10  # bytes
_HOST = "127.0.0.1"

Headers = Sequence[tuple[str, str]]


class NoPageError(Exception):
    """What came from the port is no answer, or too long a one."""


@attrs.frozen
class FetchedPage:
    """The answer of a server on the loopback."""

    status: int
    headers: dict[str, str]  # by their names in lower case
    body: bytes


async def ask(port: int, method: str, target: str, headers: Headers, body: bytes, *, most_bytes: int) -> FetchedPage:
    """Send one request to a server of this container, and return the answer. ``target``: path and query.

    Raises NotThereError, StrangerError, NoPageError.
    """
    try:
        reader, writer = await asyncio.open_connection(_HOST, port)
    except OSError as error:
        raise NotThereError(str(error)) from error
    http = h11.Connection(h11.CLIENT)
    try:
        # Check before sending the path, because the path is a secret, and a browser shows the answer.
        await expect_own(writer.get_extra_info("socket"), port)
        own = [("Host", f"{_HOST}:{port}"), ("Connection", "close"), ("Content-Length", str(len(body)))]
        for event in (
            h11.Request(method=method, target=target, headers=[*own, *headers]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(event) or b"")
        return await _receive(http, reader, most_bytes)
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise NoPageError(f"this cannot be asked: {error}") from error
    except h11.RemoteProtocolError as error:
        raise NoPageError(f"what came is not HTTP: {error}") from error
    except OSError as error:
        raise NoPageError(f"the connection broke: {error}") from error
    finally:
        writer.transport.abort()


async def _receive(http: h11.Connection, reader: asyncio.StreamReader, most_bytes: int) -> FetchedPage:
    status, headers, body = 0, {}, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most_bytes:
                raise NoPageError(f"the answer has more than {most_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return FetchedPage(status, headers, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise NoPageError("the connection ended before the answer")
