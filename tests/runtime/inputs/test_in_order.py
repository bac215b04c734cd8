from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from tony_provider.runtime.common.concurrency import in_parallel_ordered

DEADLINE = 60


def nothing() -> None:
    pass


def test_results_come_in_order_and_little_is_taken_ahead() -> None:
    taken: list[int] = []
    turn = threading.Event()

    def things() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    def work(number: int) -> int:
        if number == 0:
            assert turn.wait(DEADLINE)
        if number == 1:
            turn.set()  # so it was done beside it
        return number * 2

    assert list(islice(in_parallel_ordered(work, things(), 3, nothing), 5)) == [0, 2, 4, 6, 8]
    assert len(taken) <= 5 + 2 * 3
    assert list(in_parallel_ordered(work, range(20), 3, nothing)) == [number * 2 for number in range(20)]


def test_what_the_work_raises_ends_it() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise TimeoutError("its own")  # and not that of the wait for it
        return number

    found = in_parallel_ordered(work, range(100), 2, nothing)
    assert list(islice(found, 7)) == list(range(7))
    with pytest.raises(TimeoutError, match="its own"):
        next(found)


def test_a_wait_for_work_that_hangs_ends_when_it_has_lasted_too_long() -> None:
    hanging = threading.Event()
    looks = iter([None, ZeroDivisionError()])

    def look() -> None:
        if (error := next(looks)) is not None:
            raise error

    try:
        with pytest.raises(ZeroDivisionError):
            list(in_parallel_ordered(lambda _: hanging.wait(DEADLINE), range(3), 1, look))
    finally:
        hanging.set()
