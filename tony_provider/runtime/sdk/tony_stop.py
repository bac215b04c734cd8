"""Whether this process was told to stop; reached by ``tony_sdk.stopping``. Needs nothing but Python 3.8."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, Optional, Union

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]


class _Listener:
    """Takes note of the first SIGTERM of this process, which then does not end it; the second one is as ever."""

    def __init__(self) -> None:
        self.told = False
        self.process = os.getpid()
        former = signal.getsignal(signal.SIGTERM)
        owner = getattr(former, "__self__", None)
        # A child has its parent's listener, which would end it: that one is passed over.
        self._former: _Handler = owner._former if isinstance(owner, _Listener) else former
        signal.signal(signal.SIGTERM, self._take)

    def _take(self, number: int, frame: Optional[FrameType]) -> None:
        # A handler that is not Python's own cannot be put back.
        signal.signal(number, signal.SIG_DFL if self._former is None else self._former)
        if os.getpid() != self.process:  # a child, such as one that loads data: none of them is asked
            os.kill(os.getpid(), number)
            return
        self.told = True
        if callable(self._former):
            self._former(number, frame)


_listener: Optional[_Listener] = None


def stopping() -> bool:
    """Whether the job has told this process to stop. Costs a microsecond."""
    global _listener
    if not os.environ.get("TONY_TASK_TYPE"):
        return False
    if _listener is None or _listener.process != os.getpid():
        if threading.current_thread() is not threading.main_thread():
            return False
        _listener = _Listener()
    return _listener.told
