"""Answers over HTTP, read up to a size and by a deadline: what answers may be a job's own, or something else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import requests

from tony_provider.runtime.foreign_json import ForeignJsonError, read_json


class AnswerTooLong(requests.RequestException):
    """An answer has more bytes than any of its kind, or takes longer than it may."""


def ask(session: requests.Session, method: str, url: str, most_bytes: int, seconds: float, **more: Any) -> Any:
    """The whole answer to a request, a ``requests.Response``; ``more`` as ``Session.request`` has it.

    ``seconds``: from now until its last byte. Raises requests.RequestException, AnswerTooLong among them.
    """
    deadline = time.monotonic() + seconds
    response = session.request(method, url, stream=True, **more)
    with response:
        response.raw = _Bounded(response.raw, most_bytes, deadline)
        response.content  # noqa: B018 - reads it
    return response


def json_object(response: requests.Response) -> dict[str, Any] | None:
    """The JSON object that was answered; None for what is none. Text in it may be ``surrogateescape``d bytes."""
    try:
        found = read_json(response.content, surrogates=True)
    except ForeignJsonError:
        return None
    return found if isinstance(found, dict) else None


class _Bounded:
    """urllib3's response as ``requests`` reads one."""

    def __init__(self, raw: Any, most_bytes: int, deadline: float) -> None:
        self._raw = raw
        self._most = most_bytes
        self._deadline = deadline

    def stream(self, amount: int, decode_content: bool = True) -> Iterator[bytes]:
        left = self._most
        # What has come, however little it is: the deadline is looked at after each piece.
        while piece := self._raw.read1(amount, decode_content=decode_content):
            left -= len(piece)
            if left < 0:
                raise AnswerTooLong(f"the answer has more than {self._most} bytes")
            if time.monotonic() > self._deadline:
                raise AnswerTooLong("the answer takes too long")
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
