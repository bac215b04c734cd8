"""Kerberos's errors as the storage's own: of one server among several, whose trouble is nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from tony_provider.runtime.storage.errors import StorageAuthError
from tony_provider.runtime.storage.webhdfs.config import Negotiate, SpnegoExchange


def as_storage_errors(negotiate: Negotiate, kind: type[Exception]) -> Negotiate:
    """As ``negotiate``, whose errors of this kind are StorageAuthErrors."""

    def speak(host: str) -> SpnegoExchange:
        with _translated(host, kind):
            return _Exchange(negotiate(host), host, kind)

    return speak


class _Exchange:
    def __init__(self, exchange: SpnegoExchange, host: str, kind: type[Exception]) -> None:
        self.authorization = exchange.authorization
        self._exchange = exchange
        self._host = host
        self._kind = kind

    def check(self, answer: Optional[str]) -> None:
        with _translated(self._host, self._kind):
            self._exchange.check(answer)


@contextmanager
def _translated(host: str, kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise StorageAuthError(f"HTTP@{host}", "speak with", str(error)) from error
