"""A lock between the processes of one machine: a file that one of them holds."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL = 0.05  # seconds; flock() itself knows no deadline


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Context manager that holds the file until its end, or that of this process.

    It is made where there is none, and stays.

    Raises TimeoutError when another process still holds it after ``seconds``, OSError when it cannot be opened.
    """
    deadline = time.monotonic() + seconds
    with path.open("a") as file:
        while not _try(file.fileno()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"another process has held {path} for {seconds:g} s")
            time.sleep(_POLL)
        yield  # closing the file releases it


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
