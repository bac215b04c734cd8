"""Work on many things, several at a time, whose results come in the order of the things."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Callable, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LOOK = 1.0  # seconds


def in_order(work: Callable[[T], R], things: Iterable[T], at_once: int, looks: Callable[[], None]) -> Iterator[R]:
    """The result of ``work`` for each thing, of which at most ``2 * at_once`` are taken ahead.

    ``looks`` is called before each result, and again each second while it is waited for; what it raises ends the work,
    and so does what ``work`` raises. Blocks. Work that is under way then is not waited for.
    """
    pool = ThreadPoolExecutor(at_once, "inputs")
    begun: deque[Future[R]] = deque()
    try:
        for thing in things:
            begun.append(pool.submit(work, thing))
            if len(begun) >= 2 * at_once:
                yield _result(begun.popleft(), looks)
        while begun:
            yield _result(begun.popleft(), looks)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[R], looks: Callable[[], None]) -> R:
    while True:
        looks()
        try:
            return future.result(_LOOK)
        except NotYet:
            if future.done():  # the work's own
                return future.result()
