"""What tasks have asked for and wait for, held to a size: each asks for as little at a time as it can use."""

from __future__ import annotations

from collections import Counter

MOST = 16 << 20  # bytes of requests of one task
_LEAST = 1 << 10  # bytes that any request counts as: it is kept with what is around it


class Outstanding:
    """The bytes of requests that wait for an answer, by task."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def add(self, task: str, size: int) -> str:
        """Count a request of so many bytes; why it cannot be taken, else nothing."""
        if self._bytes[task] + max(size, _LEAST) > MOST:
            return f"{task} has asked for more than can be kept ({MOST >> 20} MiB) before it has heard of what it asked"
        self._bytes[task] += max(size, _LEAST)
        return ""

    def remove(self, task: str, size: int) -> None:
        """A request that was counted is over."""
        self._bytes[task] -= max(size, _LEAST)
        if self._bytes[task] <= 0:
            del self._bytes[task]
