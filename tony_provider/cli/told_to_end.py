"""Commands that go on until Ctrl-C, and leave nothing then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_told_to_end() -> Iterator[threading.Event]:
    """Gives what is set by Ctrl-C, and by the signals that end a process: none of them disturbs the end itself."""
    over = threading.Event()
    before = {each: signal.signal(each, lambda *_: over.set()) for each in _ENDING}
    try:
        yield over
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
