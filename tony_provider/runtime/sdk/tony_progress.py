"""Reports of a loop or a callback: so many a second, and how long was waited for data. Needs nothing but Python 3.8."""

from __future__ import annotations

import importlib
import time
from collections import deque
from typing import Any, Callable, Optional

_PAUSE = 1.0  # seconds between two reports
_WINDOW = 10  # reports that the share of waiting is taken over
_OWN = ("step", "total_steps")


class LoopProgress:
    """How far this process is, told to the job about once a second, whatever it is called.

    ``waiting`` and ``working`` say what the time from now on goes into; where both are used, the share of waiting is
    reported as the metric ``input_wait``, from 0 to 1.
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
        self._spent = [0.0, 0.0]  # seconds since the last report: working, waiting
        self._former: deque[tuple[float, float]] = deque(maxlen=_WINDOW)  # the same of the reports before
        self._said = True

    def waiting(self) -> None:
        """From now on this process waits for data."""
        self._turn(waits=True)

    def working(self) -> None:
        """From now on it does something else."""
        self._turn(waits=False)

    def worked(self) -> None:
        """What was taken for waiting was none, such as an evaluation; from now on this process waits for data."""
        self._waits = None if self._waits is None else False
        self.waiting()

    @property
    def due(self) -> bool:
        """Whether the next ``at`` reports."""
        return self._clock() >= self._due

    def note(self, /, **metrics: Any) -> None:
        """Have these in the next report. They are made numbers only then: that may wait for a device."""
        self._metrics.update((name, value) for name, value in metrics.items() if name not in _OWN)
        self._said = False

    def at(self, step: int, /, **metrics: Any) -> None:
        """So many steps are done; with metrics as for ``note``."""
        self._step = step
        self.note(**metrics)
        if self.due:
            self.say()

    def say(self) -> None:
        """Report what is new, now."""
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
