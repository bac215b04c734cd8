"""Work on many things, a few at a time: never more is held than is under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Callable, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def at_once(work: Callable[[T], R], things: Iterable[T], workers: int, name: str) -> Iterator[R]:
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
