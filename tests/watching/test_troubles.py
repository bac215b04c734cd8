"""What a task's log says of troubles: when they begin, now and then, when they are over, and never more than that."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.watching.observations import Clock
from tony_provider.watching.progress_log import FIRST_REMINDER, LONGEST_PAUSE, OngoingProblems

_TIME = re.compile(r" since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


@attrs.define
class Log:
    clock: Clock = attrs.field(factory=Clock)
    lines: list[str] = attrs.field(factory=list)
    troubles: OngoingProblems = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.troubles = OngoingProblems(lambda line: self.lines.append(_TIME.sub(" since then", line)), self.clock)

    def after(self, seconds: float) -> OngoingProblems:
        self.clock.now += seconds
        return self.troubles

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_line_when_it_begins_and_one_when_it_is_over(log: Log) -> None:
    for _ in range(10):
        log.after(4).goes_on("store", "The store does not answer", "connection refused")
    log.after(5).is_over("store", "The store answers again")
    assert log.lines == [
        "The store does not answer since then: connection refused",
        "The store answers again, after 41 s",
    ]


def test_it_may_have_begun_before_it_was_noticed(log: Log) -> None:
    log.troubles.goes_on("store", "The store does not answer", since=log.clock.now - 12)
    log.after(33).is_over("store", "The store answers again")
    assert log.lines[-1] == "The store answers again, after 45 s"


def test_reminders_at_growing_intervals(log: Log) -> None:
    log.troubles.goes_on("store", "The store refuses", "quota")
    told: list[int] = []
    for second in range(3 * 3600):
        log.after(1).goes_on("store", "The store refuses", "quota")
        told += [second + 1] * (len(log.lines) - 1 - len(told))
    pauses = [later - sooner for sooner, later in zip([0, *told], told, strict=False)]
    assert pauses[:5] == [60, 120, 240, 480, LONGEST_PAUSE]
    assert set(pauses[4:]) == {LONGEST_PAUSE}
    assert log.lines[1] == "The store refuses since then: quota (for 1 min)"


def test_what_is_said_at_last_is_told_at_once(log: Log) -> None:
    log.troubles.goes_on("rm", "The ResourceManager does not answer")
    log.after(5).goes_on("rm", "The ResourceManager refuses", "who are you?")
    log.after(5).goes_on("rm", "The ResourceManager refuses", "somebody else, then")
    assert log.taken() == [
        "The ResourceManager does not answer since then",
        "The ResourceManager refuses since then: who are you?",
    ]
    log.after(FIRST_REMINDER).goes_on("rm", "The ResourceManager refuses", "somebody else, then")
    assert log.lines == ["The ResourceManager refuses since then: somebody else, then (for 1 min 10 s)"]


def test_several_at_a_time(log: Log) -> None:
    log.troubles.goes_on("rm", "R")
    log.troubles.goes_on("store", "S")
    assert [_TIME.sub("", line) for line in log.troubles.lines] == ["R", "S"]
    log.after(1).is_over("rm", "R again")
    assert [_TIME.sub("", line) for line in log.troubles.lines] == ["S"]
    assert "store" in log.troubles


def test_what_was_not_there_is_not_over(log: Log) -> None:
    log.troubles.is_over("rm", "again")
    log.troubles.goes_on("rm", "gone")
    log.troubles.forget("rm")
    log.troubles.is_over("rm", "again")
    assert log.lines == ["gone since then"]


def test_what_comes_and_goes_is_no_flood(log: Log) -> None:
    for _ in range(60):
        log.after(5).goes_on("rm", "gone", "timeout")
        log.after(5).is_over("rm", "there")
    assert len(log.lines) <= 8  # in ten minutes
    log.after(FIRST_REMINDER).goes_on("rm", "gone", "timeout")
    assert log.lines[-1] == "gone since then: timeout"


@given(
    st.lists(st.tuples(st.sampled_from([0.5, 5.0, 61.0]), st.booleans(), st.sampled_from(["", "why"])), max_size=200)
)
def test_each_end_follows_a_beginning(course: list[tuple[float, bool, str]]) -> None:
    log = Log()
    for seconds, away, said in course:
        if away:
            log.after(seconds).goes_on("rm", "gone", said)
        else:
            log.after(seconds).is_over("rm", "there")
    began = False
    for line in log.lines:
        if line.startswith("there"):
            assert began
            began = False
        else:
            began = True
    hours = sum(seconds for seconds, _, _ in course) / 3600
    assert len(log.lines) <= 8 + 150 * hours
