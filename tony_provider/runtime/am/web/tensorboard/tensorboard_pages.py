"""Pages of the job's TensorBoard, asked of the side-car's executor and put together from the pieces of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

import attrs

from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.executor_requests import ExecutorRequest, ExecutorRequests, NoAnswerError
from tony_provider.runtime.am.web.http_messages import HttpError
from tony_provider.runtime.deadline import within
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.spec.tensorboard import TASK

_AT_ONCE = 4  # so much memory of the master, and no more
_MOST_BYTES = limits.LARGEST_PAGE
_SECONDS = 25.0  # for all of one page; its executor takes less before it gives up itself


class NotUpError(Exception):
    """TensorBoard does not answer yet, or not any more."""


@attrs.frozen
class PageRequest:
    """A request for one of TensorBoard's pages."""

    method: str
    target: str  # path and query as HTTP writes them, from TensorBoard's root on
    headers: Mapping[str, str]
    body: bytes = b""


@attrs.frozen
class PageAnswer:
    """TensorBoard's answer to a PageRequest."""

    status: int
    headers: Mapping[str, str]  # by their names in lower case
    body: bytes


class TensorBoardPages:
    """Fetches TensorBoard's pages. Used within a running event loop."""

    def __init__(self, executor_requests: ExecutorRequests) -> None:
        self._executor_requests = executor_requests
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, asked: PageRequest) -> PageAnswer:
        """TensorBoard's answer to a request. Raises NotUpError, HttpError."""
        make = partial(
            wire_messages.page_wanted,
            method=asked.method,
            target=asked.target,
            headers=asked.headers,
            body=asked.body,
        )
        try:
            async with self._turns:
                with self._executor_requests.asking(TASK, make) as question:
                    return await within(_whole(question), _SECONDS)
        except NoAnswerError as error:
            raise NotUpError(str(error)) from error
        except asyncio.TimeoutError as error:
            raise HttpError(HTTPStatus.GATEWAY_TIMEOUT, f"TensorBoard took longer than {_SECONDS:g} s") from error


async def _whole(question: ExecutorRequest) -> PageAnswer:
    """Raises NoAnswerError, NotUpError, HttpError."""
    part = await _part(question)
    if part.problem:
        if part.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NotUpError(part.problem)
        raise HttpError(part.status, part.problem)
    status, headers = part.status, dict(part.headers)
    body = bytearray(part.data)
    while not part.last:
        part = await _part(question)
        if part.problem:
            raise HttpError(part.status, part.problem)
        body += part.data
        if len(body) > _MOST_BYTES:
            raise HttpError(HTTPStatus.BAD_GATEWAY, f"TensorBoard's answer has more than {_MOST_BYTES} bytes")
    return PageAnswer(status, headers, bytes(body))


async def _part(question: ExecutorRequest) -> tony_pb2.Page:
    return (await question.answer(_SECONDS)).page
