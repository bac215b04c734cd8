"""How long a store was busy for somebody: the time in which at least one of the calls to it was under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from tony_provider.runtime.storage.base import Storage


class BusyStore:
    """Watches the calls of one or more stores, of any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[tuple[float, float]] = []

    def watching(self, storage: Storage) -> Storage:
        """The same store, whose calls, and those of the streams that it opens, are watched."""
        return cast(Storage, _Watched(self, storage))

    def seconds(self) -> float:
        """So far; calls that go side by side count once."""
        with self._lock:
            calls = sorted(self._calls)
        total, until = 0.0, 0.0
        for began, ended in calls:
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total

    @contextmanager
    def call(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._calls.append((began, time.monotonic()))


class _Watched:
    def __init__(self, busy: BusyStore, watched: Any) -> None:
        self._busy = busy
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        return self._timed(found) if callable(found) else found

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self._busy.call():
                answer = method(*arguments, **named)
            return _Watched(self._busy, answer) if method.__name__ == "open_read" else answer

        return timed
