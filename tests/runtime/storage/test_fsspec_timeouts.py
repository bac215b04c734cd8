"""Timeouts of an fsspec driver. Before Python 3.11, they are of several classes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import fsspec
import pytest

from tony_provider.runtime.storage.errors import StorageTimeout
from tony_provider.runtime.storage.fsspec_store import FsspecStorage


class Slow(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A driver whose store does not answer in time."""

    error: type[BaseException] = TimeoutError

    def info(self, path: str, **more: Any) -> dict[str, Any]:
        raise self.error(path)


@pytest.mark.parametrize("error", [TimeoutError, socket.timeout, asyncio.TimeoutError])
def test_every_timeout_is_a_timeout_of_the_store(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Seen on Python 3.9: fsspec's FSTimeoutError, an asyncio.TimeoutError, was no error of the store."""
    fsspec.register_implementation("slow", Slow, clobber=True)
    monkeypatch.setattr(Slow, "error", error)
    with pytest.raises(StorageTimeout):
        FsspecStorage("slow").status("slow://bucket/file")
