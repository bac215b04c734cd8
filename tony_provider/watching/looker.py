"""Looking at a job in a thread of its own: whoever waits can tell meanwhile that there is no answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from tony_provider.watching.observation import Observation
from tony_provider.watching.watch import JobWatch
from tony_provider.watching.watch_result import WatchResult

T = TypeVar("T")

MEANWHILE = 1.0  # seconds between two chances to tell, and to heed a kill, while a look takes long


class Looker:
    """Looks at a job in a thread of its own and judges what is seen.

    ``look`` blocks, perhaps for minutes. A process does not wait for it at its end.
    """

    def __init__(self, look: Callable[[], Observation], watch: JobWatch) -> None:
        self._look = look
        self._watch = watch
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._seen: queue.SimpleQueue[Observation | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tony-looker", daemon=True)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted.put(False)

    def judge(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[WatchResult | None, Observation | None]:
        """Look once more: returns the watch's result, if it has one, and what was seen.

        While the look takes long, ``meanwhile`` is called, and may raise.
        """
        self._wanted.put(True)
        while True:
            try:
                seen = self._seen.get(timeout=MEANWHILE)
            except queue.Empty:
                meanwhile()
                if (ending := self._watch.judge(None)) is not None:
                    return ending, None
            else:
                if isinstance(seen, BaseException):
                    raise seen
                return self._watch.judge(seen), seen

    def _run(self) -> None:
        while self._wanted.get():
            try:
                self._seen.put(self._look())
            except BaseException as fault:  # noqa: BLE001 - raised where it is waited for
                self._seen.put(fault)
