"""Blocking and asynchronous work with limits: cancellation, deadlines, bounded parallelism, retries with pauses."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Callable, Generic, Optional, TypeVar


class Cancelled(Exception):  # noqa: N818 - describes what happened
    """The caller cancelled the work. No partial result is left."""


T = TypeVar("T")


def loop_time() -> float:
    """Return the time of the running event loop, in seconds of a monotonic clock."""
    return asyncio.get_running_loop().time()


async def wait_with_timeout(work: Awaitable[T], seconds: Optional[float]) -> T:
    """Wait at most ``seconds`` for ``work``, and return its result.

    Cancels the work on timeout and if the caller is cancelled. Raises asyncio.TimeoutError.

    Replaces asyncio.wait_for, which before Python 3.12 loses a cancellation that arrives just as the work completes
    (https://github.com/python/cpython/issues/86296). The cancelled task then continues, and its awaiter waits forever.
    """
    task = asyncio.ensure_future(work)
    try:
        in_time, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        _ = task.cancelled() or task.exception()  # asyncio logs exceptions that were never retrieved
    if not in_time and task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


def failure_of(ended: asyncio.Future[Any]) -> Optional[BaseException]:
    """Return the exception of work that has ended, or None if it has succeeded or was cancelled."""
    return None if ended.cancelled() else ended.exception()


def log_failure(log: logging.Logger, message: str, ended: asyncio.Future[Any]) -> None:
    """Log the exception of work that has ended, if it has failed. Suitable for ``add_done_callback``."""
    if error := failure_of(ended):
        log.error(message, exc_info=error)


def run_in_threads(functions: Iterable[Callable[[], T]], seconds: float, name: str) -> list[Future[T]]:
    """Call each function in a daemon thread, wait for them for at most ``seconds``, and return their futures in order.

    A call that has not ended by then continues, and does not prevent the process from ending. Use this for calls
    without a timeout, such as name resolution. ``name``: name of the threads.
    """
    futures: list[Future[T]] = []
    for function in functions:
        future: Future[T] = Future()
        threading.Thread(target=_complete, args=(future, function), name=name, daemon=True).start()
        futures.append(future)
    wait(futures, seconds)
    return futures


def _complete(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the future passes it to the caller
        future.set_exception(error)


R = TypeVar("R")


def in_parallel(
    work: Callable[[T], R], items: Iterable[T], workers: int, name: str, stop: Callable[[], object] = lambda: None
) -> Iterator[R]:
    """Yield the result of ``work`` for each of the items, in any order. Blocks.

    After the first error of ``work``, no further work is started, and ``stop`` is called to end running work early.
    When all running work has ended, the error is raised. If the error is Cancelled and other work has failed with
    another error, the other error is raised, because it may have caused the cancellation. ``name``: prefix of the
    threads' names.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix=name) as pool:
        done: set[Future[R]] = set()
        pending: set[Future[R]] = set()
        try:
            for item in items:
                pending.add(pool.submit(work, item))
                if len(pending) >= 2 * workers:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException as raised:
            for future in pending:
                future.cancel()
            stop()
            if isinstance(raised, Cancelled):
                for future in [*done, *pending]:
                    error = None if future.cancelled() else future.exception()
                    if error is not None and not isinstance(error, Cancelled):
                        raise error from None
            raise


_POLL = 1.0  # seconds


def in_parallel_ordered(
    work: Callable[[T], R], items: Iterable[T], workers: int, check_cancelled: Callable[[], None] = lambda: None
) -> Iterator[R]:
    """Yield the result of ``work`` for each item, in order; at most ``2 * workers`` items are taken ahead.

    Calls ``check_cancelled`` before each result, and each second while waiting for a result. If ``check_cancelled`` or
    ``work`` raises an error, the iteration ends without waiting for running work. Blocks.
    """
    pool = ThreadPoolExecutor(workers, "inputs")
    begun: deque[Future[R]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) >= 2 * workers:
                yield _result(begun.popleft(), check_cancelled)
        while begun:
            yield _result(begun.popleft(), check_cancelled)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[R], check_cancelled: Callable[[], None]) -> R:
    while True:
        check_cancelled()
        try:
            return future.result(_POLL)
        except NotYet:
            if future.done():  # the work itself raised this error
                return future.result()


E = TypeVar("E", bound=Exception)

FIRST_PAUSE = 1.0  # seconds between the first two attempts; doubles up to LONGEST_PAUSE
LONGEST_PAUSE = 15.0  # seconds


def pauses(first: float, longest: float, jitter: float = 0.0) -> Iterator[float]:
    """Yield pauses between attempts, in seconds and without end: they double from ``first`` up to ``longest``.

    ``jitter``: multiply each pause by a random factor in 1 ± ``jitter``.
    """
    while True:
        yield first * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - only spreads the load
        first = min(2 * first, longest)


async def retry(
    work: Callable[[], Awaitable[T]], seconds: float, on: type[E], on_first_failure: Callable[[E], None]
) -> T:
    """Repeat ``work`` while it raises ``on``, for at most ``seconds`` after the first failure.

    Calls ``on_first_failure`` with the first failure. Raises the last failure, and any other error at once.
    """
    failures = _Failures(seconds, on_first_failure)
    while True:
        try:
            return await work()
        except on as error:
            pause = failures.pause_after(error)
        await asyncio.sleep(pause)


def retry_blocking(
    work: Callable[[], T],
    seconds: float,
    on: type[E],
    on_first_failure: Callable[[E], None],
    cancelled: threading.Event,
) -> T:
    """Repeat blocking ``work`` as ``retry`` does. Also raises Cancelled, if ``cancelled`` is set during a pause."""
    failures = _Failures(seconds, on_first_failure)
    while True:
        try:
            return work()
        except on as error:
            pause = failures.pause_after(error)
        if cancelled.wait(pause):
            raise Cancelled("the wait before the next attempt was cancelled")


class _Failures(Generic[E]):
    """Tracks the failures within one call of ``retry`` or ``retry_blocking``."""

    def __init__(self, seconds: float, on_first_failure: Callable[[E], None]) -> None:
        self._seconds = seconds
        self._on_first_failure = on_first_failure
        self._pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE)
        self._until: Optional[float] = None

    def pause_after(self, error: E) -> float:
        """Return the seconds to wait before the next attempt. Raises the error if that attempt would be too late."""
        now, pause = time.monotonic(), next(self._pauses)
        if self._until is None:
            self._until = now + self._seconds
            self._on_first_failure(error)
        if now + pause > self._until:
            raise error
        return pause
