"""The exception that ends blocking work whose caller has cancelled it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from typing import Callable, Generic, Optional, TypeVar


class Cancelled(Exception):  # noqa: N818 - describes what happened
    """The caller cancelled the work. The work left nothing behind."""


T = TypeVar("T")


async def wait_with_timeout(work: Awaitable[T], seconds: Optional[float]) -> T:
    """Wait for ``work``, at most so many seconds; returns what it gives.

    It is cancelled when it takes longer, and when the caller is. Raises asyncio.TimeoutError.

    In place of asyncio.wait_for, which before Python 3.12 forgets a cancellation that comes when the work is just done
    (https://github.com/python/cpython/issues/86296): a task that was told to end then goes on, and whoever waits for
    its end waits for ever.
    """
    task = asyncio.ensure_future(work)
    try:
        in_time, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        _ = task.cancelled() or task.exception()  # asyncio complains of exceptions that nobody looked at
    if not in_time and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


R = TypeVar("R")


def in_parallel(work: Callable[[T], R], things: Iterable[T], workers: int, name: str) -> Iterator[R]:
    """What ``work`` gives for each of the things, in any order. Blocks.

    What it raises first ends all: no more is begun, and what is under way has ended when it is raised. ``name``: of
    the threads.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix=name) as pool:
        pending: set[Future[R]] = set()
        try:
            for thing in things:
                pending.add(pool.submit(work, thing))
                if len(pending) >= 2 * workers:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in pending:
                future.cancel()


_LOOK = 1.0  # seconds


def in_parallel_ordered(
    work: Callable[[T], R], things: Iterable[T], at_once: int, looks: Callable[[], None]
) -> Iterator[R]:
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


E = TypeVar("E", bound=Exception)

FIRST_PAUSE = 1.0  # seconds between the first tries, doubled up to
LONGEST_PAUSE = 15.0


def pauses(first: float, longest: float) -> Iterator[float]:
    """Pauses between one try and the next, in seconds, that grow from ``first`` to ``longest``; without an end."""
    while True:
        yield first
        first = min(2 * first, longest)


async def retry(work: Callable[[], Awaitable[T]], seconds: float, on: type[E], told: Callable[[E], None]) -> T:
    """Do ``work`` again and again while it fails with ``on``, for so many seconds from the first failure on.

    ``told`` hears of the first failure; the last one is raised, and at once whatever is not ``on``.
    """
    failures = _Failures(seconds, told)
    while True:
        try:
            return await work()
        except on as error:
            pause = failures.pause_after(error)
        await asyncio.sleep(pause)


def retry_blocking(
    work: Callable[[], T], seconds: float, on: type[E], told: Callable[[E], None], cancelled: threading.Event
) -> T:
    """Do ``work`` as ``retry`` does, in a thread. Raises Cancelled, too."""
    failures = _Failures(seconds, told)
    while True:
        try:
            return work()
        except on as error:
            pause = failures.pause_after(error)
        if cancelled.wait(pause):
            raise Cancelled("waiting for the store was cancelled")


class _Failures(Generic[E]):
    """The failures of one piece of work so far."""

    def __init__(self, seconds: float, told: Callable[[E], None]) -> None:
        self._seconds = seconds
        self._told = told
        self._pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE)
        self._until: Optional[float] = None

    def pause_after(self, error: E) -> float:
        """Raises the error when the next try would come too late."""
        now, pause = time.monotonic(), next(self._pauses)
        if self._until is None:
            self._until = now + self._seconds
            self._told(error)
        if now + pause > self._until:
            raise error
        return pause
