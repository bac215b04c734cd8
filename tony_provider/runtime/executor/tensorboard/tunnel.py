"""The tunnel to TensorBoard: requests come over the stream from the application master, and answers go back."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.link import Link
from tony_provider.runtime.executor.peers import NotThereError, StrangerError
from tony_provider.runtime.executor.tensorboard import loopback
from tony_provider.runtime.executor.tensorboard.loopback import FetchedPage, NoPageError
from tony_provider.runtime.protocol import limits, tony_pb2

log = logging.getLogger(__name__)

MOST_BYTES = limits.LARGEST_PAGE
_AT_ONCE = 4
_SECONDS = 20.0  # for one request, its way back included
_PIECE = 256 << 10  # bytes
_HEADERS = ("content-type", "content-encoding", "content-security-policy", "cache-control", "content-disposition")


class Tunnel:
    """Answers the master's requests for pages of this container's TensorBoard. Used within a running event loop."""

    def __init__(self, link: Link, port: int, path: str) -> None:
        """``path``: below which TensorBoard answers, a secret."""
        self._link = link
        self._port = port
        self._path = path
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._sending = asyncio.Lock()

    async def answer(self, wanted: tony_pb2.PageWanted) -> None:
        """Fetch a page and send it to the master. Raises nothing. Nobody waits longer than ``_SECONDS`` for it."""
        try:
            await within(self._answer(wanted), _SECONDS)
        except asyncio.TimeoutError:
            self._refuse(wanted, HTTPStatus.GATEWAY_TIMEOUT, f"TensorBoard did not answer within {_SECONDS:g} s")
        except NotThereError as error:
            log.debug("TensorBoard is not there: %s", error)
            self._refuse(wanted, HTTPStatus.SERVICE_UNAVAILABLE, "TensorBoard does not listen yet")
        except (StrangerError, NoPageError) as error:
            self._refuse(wanted, HTTPStatus.BAD_GATEWAY, str(error))

    async def _answer(self, wanted: tony_pb2.PageWanted) -> None:
        async with self._turns:
            page = await loopback.ask(
                self._port,
                wanted.method,
                self._path + wanted.target,
                list(wanted.headers.items()),
                wanted.body,
                most_bytes=MOST_BYTES,
            )
            await self._send(wanted.question, page)

    async def _send(self, question: int, page: FetchedPage) -> None:
        """In pieces, each of them when the one before has gone, so that heartbeats get in between."""
        headers = {name: page.headers[name] for name in _HEADERS if name in page.headers}
        message = tony_pb2.Page(question=question, status=page.status, headers=headers)
        for start in range(0, max(len(page.body), 1), _PIECE):
            message.data = page.body[start : start + _PIECE]
            message.last = start + _PIECE >= len(page.body)
            async with self._sending:
                self._link.send(tony_pb2.FromExecutor(page=message))
                await self._link.sent()
            message = tony_pb2.Page(question=question)

    def _refuse(self, wanted: tony_pb2.PageWanted, status: int, problem: str) -> None:
        page = tony_pb2.Page(question=wanted.question, status=status, problem=problem, last=True)
        self._link.send(tony_pb2.FromExecutor(page=page))
