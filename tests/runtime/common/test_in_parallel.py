"""Work in several threads, which ends with the first error."""

from __future__ import annotations

import threading

import pytest

from tony_provider.runtime.common.concurrency import Cancelled, in_parallel

DEADLINE = 60


def test_results_of_all_things_are_returned() -> None:
    assert sorted(in_parallel(lambda number: 2 * number, range(50), 4, "test")) == list(range(0, 100, 2))


def test_the_first_error_stops_running_work_and_starts_no_more() -> None:
    stopped, started = threading.Event(), []

    def work(number: int) -> None:
        started.append(number)
        if number == 1:
            raise ValueError("one")
        assert stopped.wait(DEADLINE)

    with pytest.raises(ValueError, match="one"):
        list(in_parallel(work, range(100), 2, "test", stopped.set))
    assert len(started) < 5


def test_an_error_is_not_hidden_by_work_that_it_has_cancelled() -> None:
    stopped, ended = threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 1:
            stopped.set()  # as the parts of a file do, before the last of them has ended
            assert ended.wait(DEADLINE)
            raise ValueError("one")
        assert stopped.wait(DEADLINE)
        raise Cancelled("because of one")

    with pytest.raises(ValueError, match="one"):
        list(in_parallel(work, range(2), 2, "test", ended.set))


def test_work_that_is_cancelled_from_outside_is_cancelled() -> None:
    def work(number: int) -> None:
        raise Cancelled("by the user")

    with pytest.raises(Cancelled, match="by the user"):
        list(in_parallel(work, range(9), 2, "test"))
