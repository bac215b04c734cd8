"""A loop whose progress the job sees; reached by ``tony_sdk.track``. Needs nothing but Python 3.8."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Optional, TypeVar, cast

Item = TypeVar("Item")

_loops: list[Track[Any]] = []  # that run in this process, the innermost last


def innermost() -> Optional[Track[Any]]:
    """The loop that runs now; of several the one that began last."""
    return _loops[-1] if _loops else None


class Track(Generic[Item]):
    """The items of a loop. ``step`` counts those that are done, from ``start``; ``stopped``: it has ended early."""

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
        self._progress = importlib.import_module("tony_progress").LoopProgress(total)

    def __iter__(self) -> Iterator[Item]:
        items = self._left()
        if self._stop:
            self._sdk.stopping()  # so that it is heard of from now on
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
        """All steps of the training; None: that is not known."""
        total: Optional[int] = self._progress.total_steps
        return total

    def report(self, **metrics: Any) -> None:
        """Have these metrics in the next report; numbers, or arrays of one number.

        Costs little: they are made numbers about once a second, which for a device's may wait for the device.
        """
        self._progress.note(**metrics)

    def _left(self) -> Iterator[Item]:
        """What is still to be done: of a range without counting through what was done before."""
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
    """Steps before the first item: of a range those before where it begins, whether it counts from 0 or from 1."""
    first = items.start if isinstance(items, range) and items.step == 1 else 0
    at_resume_step = not resume and first == resume_step  # range(tony_sdk.resume_step(), …)
    if first == 1 and not at_resume_step:
        return 0
    if first == resume_step + 1 and not resume:
        return resume_step
    return max(0, first)


def _length(items: Any) -> Optional[int]:
    try:
        return len(items)
    except (TypeError, NotImplementedError):  # as an iterator, or an endless dataset
        return None
