"""Progress of training loops (``tony_sdk.track``) and the request to stop (``tony_sdk.stopping``).

Needs only Python 3.8.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Callable, Generic, Optional, TypeVar, Union, cast

_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]


class _Listener:
    """Records the first SIGTERM that this process receives, and lets the process continue.

    A second SIGTERM has its normal effect.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self.process = os.getpid()
        former = signal.getsignal(signal.SIGTERM)
        owner = getattr(former, "__self__", None)
        # A forked child inherits its parent's listener. Skip the parent's handler, because it would end the child.
        self._former: _Handler = owner._former if isinstance(owner, _Listener) else former
        signal.signal(signal.SIGTERM, self._take)

    def _take(self, number: int, frame: Optional[FrameType]) -> None:
        # A handler that was not installed from Python cannot be restored.
        signal.signal(number, signal.SIG_DFL if self._former is None else self._former)
        if os.getpid() != self.process:  # a forked child, such as a data loader, ends as usual
            os.kill(os.getpid(), number)
            return
        self.stop_requested = True
        if callable(self._former):
            self._former(number, frame)


_listener: Optional[_Listener] = None


def stopping() -> bool:
    """Return whether the job has asked this process to stop. Takes a microsecond."""
    global _listener
    if not os.environ.get("TONY_TASK_TYPE"):
        return False
    if _listener is None or _listener.process != os.getpid():
        if threading.current_thread() is not threading.main_thread():
            return False
        _listener = _Listener()
    return _listener.stop_requested


_PAUSE = 1.0  # seconds between two reports
_WINDOW = 10  # number of reports over which the share of waiting time is averaged
_OWN = ("step", "total_steps")


class LoopProgress:
    """Reports progress to the job about once a second, however often its methods are called.

    Call ``waiting`` when the loop starts to wait for data, and ``working`` when it starts to work. The share of waiting
    time is then reported as the metric ``input_wait``, from 0 to 1.
    """

    def __init__(self, total_steps: Optional[int] = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.total_steps = total_steps
        self._sdk = importlib.import_module("tony_sdk")
        self._clock = clock
        self._due = clock() + _PAUSE
        self._step: Optional[int] = None
        self._metrics: dict[str, Any] = {}
        self._waits: Optional[bool] = None
        self._since = 0.0
        self._spent = [0.0, 0.0]  # seconds of work and of waiting since the last report
        self._former: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # the two times of earlier reports
        self._said = True

    def waiting(self) -> None:
        """Count the time from now on as waiting for data."""
        self._turn(waits=True)

    def working(self) -> None:
        """Count the time from now on as work."""
        self._turn(waits=False)

    def worked(self) -> None:
        """Count the time since the last mark as work, such as an evaluation, and the time from now on as waiting."""
        self._waits = None if self._waits is None else False
        self.waiting()

    @property
    def due(self) -> bool:
        """Whether the next call of ``at`` sends a report."""
        return self._clock() >= self._due

    def note(self, /, **metrics: Any) -> None:
        """Add metrics to the next report.

        Metrics are converted to numbers only when the report is sent, because the conversion may wait for a device.
        """
        self._metrics.update((name, value) for name, value in metrics.items() if name not in _OWN)
        self._said = False

    def at(self, step: int, /, **metrics: Any) -> None:
        """Set the number of steps done, and add metrics as ``note`` does."""
        self._step = step
        self.note(**metrics)
        if self.due:
            self.say()

    def say(self) -> None:
        """Report now, unless nothing has changed since the last report."""
        if self._said or self._step is None:
            return
        metrics, self._metrics, self._said = self._metrics, {}, True
        self._due = self._clock() + _PAUSE
        share = self._input_wait()
        if share is not None:
            metrics["input_wait"] = share
        self._sdk.report(self._step, self.total_steps, **metrics)

    def _turn(self, *, waits: bool) -> None:
        now = self._clock()
        if self._waits is not None:
            self._spent[self._waits] += now - self._since
        self._since, self._waits = now, waits

    def _input_wait(self) -> Optional[float]:
        if self._waits is None:
            return None
        self._turn(waits=self._waits)
        self._former.append((self._spent[False], self._spent[True]))
        self._spent = [0.0, 0.0]
        waited = sum(waiting for _, waiting in self._former)
        whole = waited + sum(working for working, _ in self._former)
        return waited / whole if whole > 0 else None


Item = TypeVar("Item")

_loops: list[Track[Any]] = []  # running loops of this process; the innermost loop is the last item


def innermost() -> Optional[Track[Any]]:
    """Return the running loop that started last, or None."""
    return _loops[-1] if _loops else None


class Track(Generic[Item]):
    """Iterable over the items of a loop.

    ``step`` counts the steps done, from ``start``. ``stopped`` is true if the loop has ended early.
    """

    def __init__(
        self,
        items: Iterable[Item],
        total: Optional[int] = None,
        start: Optional[int] = None,
        *,
        resume: bool = False,
        stop: bool = False,
    ) -> None:
        self._sdk = importlib.import_module("tony_sdk")
        self.step = _first(items, self._sdk.resume_step(), resume) if start is None else int(start)
        self.stopped = False
        self._items = items
        self._resume = resume
        self._stop = stop
        if total is None:
            length = _length(items)
            total = None if length is None else self.step + length
        self._progress = LoopProgress(total)

    def __iter__(self) -> Iterator[Item]:
        items = self._left()
        if self._stop:
            self._sdk.stopping()  # start to listen for SIGTERM
        _loops.append(self)
        try:
            self._progress.waiting()
            for item in items:
                self._progress.working()
                yield item
                self._progress.waiting()
                self.step += 1
                self._progress.at(self.step)
                if self._stop and self._sdk.stopping():
                    self.stopped = True
                    return
        finally:
            _loops.remove(self)
            self._progress.working()
            self._progress.say()

    @property
    def total(self) -> Optional[int]:
        """The number of all steps of the training, or None if it is unknown."""
        return self._progress.total_steps

    def report(self, **metrics: Any) -> None:
        """Add metrics to the next report: numbers, or arrays of one number.

        Takes little time, because metrics are converted to numbers only about once a second. The conversion may wait
        for a device.
        """
        self._progress.note(**metrics)

    def _left(self) -> Iterator[Item]:
        """Return the remaining items. A range is sliced. Other items are skipped by consuming them."""
        done = max(0, self._sdk.resume_step() - self.step) if self._resume else 0
        if isinstance(self._items, range):
            self.step += min(done, len(self._items))
            rest: Any = self._items[done:]
            return cast("Iterator[Item]", iter(rest))
        items = iter(self._items)
        for _ in range(done):
            try:
                next(items)
            except StopIteration:
                break
            self.step += 1
        return items


def _first(items: Iterable[Any], resume_step: int, resume: bool) -> int:
    """Return the number of steps before the first item. A range may count from 0 or from 1."""
    first = items.start if isinstance(items, range) and items.step == 1 else 0
    at_resume_step = not resume and first == resume_step  # the program uses range(tony_sdk.resume_step(), …)
    if first == 1 and not at_resume_step:
        return 0
    if first == resume_step + 1 and not resume:
        return resume_step
    return max(0, first)


def _length(items: Any) -> Optional[int]:
    try:
        return len(items)
    except (TypeError, NotImplementedError):  # an iterator, or an endless dataset
        return None
