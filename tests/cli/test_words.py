"""Times, and pieces of logs, as commands show them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cli.command import age_of as ago
from tony_provider.cli.command import seconds_of, utc_time
from tony_provider.runtime.common.text import end_of_log
from tony_provider.watching.task_output import after_overlap


def test_moments() -> None:
    assert utc_time(None) == utc_time(0) == ""
    assert utc_time(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert ago(int((time.time() - 7200) * 1000)).startswith("2 h")


def test_times_as_people_write_them() -> None:
    assert (seconds_of("--grace", "90s"), seconds_of("--older-than", "30d")) == (90.0, 30 * 86400.0)
    with pytest.raises(SystemExit, match="--grace: not a time"):
        seconds_of("--grace", "soon")


@pytest.mark.parametrize(
    ("before", "tail", "expected"),
    [
        (b"", b"a\nb\n", b"a\nb\n"),
        (b"a\nb\n", b"a\nb\n", b""),
        (b"a\nb\n", b"a\nb\nc\n", b"c\n"),
        (b"a\nb\n", b"b\nc\n", b"c\n"),
        (b"a\nb\n", b"c\nb\nd\n", b"c\nb\nd\n"),  # no overlap: much was printed meanwhile
        (b"step\n", b"step\nstep\nstep\n", b"step\nstep\n"),
        (b"x" * 2000, b"x" * 1500 + b"y\n", b"y\n"),
        (b"a\n", b"", b""),
    ],
)
def test_what_is_new_in_a_log(before: bytes, tail: bytes, expected: bytes) -> None:
    assert after_overlap(before, tail) == expected


def looks(log: bytes, places: list[int], window: int) -> list[bytes]:
    """What is there of a growing log at each look."""
    return [end_of_log(log[:place], window) for place in sorted(place % (len(log) + 1) for place in places)]


def shown(tails: list[bytes]) -> bytes:
    return b"".join(after_overlap(before, tail) for before, tail in zip([b"", *tails], tails, strict=False))


WORDS = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"step"]), max_size=40).map(lambda lines: b"\n".join(lines))
PLACES = st.lists(st.integers(min_value=0, max_value=10_000), min_size=1, max_size=12)


@given(WORDS, PLACES, st.integers(min_value=1, max_value=60))
def test_what_is_shown_of_a_log_ends_as_the_log_does(log: bytes, places: list[int], window: int) -> None:
    tails = looks(log, places, window)
    for count in range(1, len(tails) + 1):
        assert shown(tails[:count]).endswith(tails[count - 1])


@given(WORDS, PLACES)
def test_of_a_log_that_is_seen_whole_nothing_is_lost_and_nothing_shown_twice(log: bytes, places: list[int]) -> None:
    tails = looks(log, places, window=len(log) + 1)
    assert shown(tails) == tails[-1]


@given(st.lists(st.integers(min_value=1, max_value=25), min_size=1, max_size=40), st.data())
def test_nothing_is_lost_while_what_is_seen_overlaps(steps: list[int], data: st.DataObject) -> None:
    log = b"".join(b"line %06d\n" % number for number in range(100))  # 12 bytes each
    first = data.draw(st.integers(min_value=1, max_value=len(log)))
    places = [min(first + sum(steps[:count]), len(log)) for count in range(len(steps) + 1)]
    tails = [end_of_log(log[:place], 40) for place in places]
    assert shown(tails) == log[places[0] - len(tails[0]) : places[-1]]
