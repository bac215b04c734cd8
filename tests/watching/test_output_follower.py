"""Following a task's output, from masters that know pieces and from older ones, here scripted."""

from __future__ import annotations

from typing import Any, cast

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cluster.errors import ClusterAuthError, MasterOutOfReach
from tony_provider.runtime.protocol.http_messages import LogPiece, OutputPiece
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState, TaskStatus
from tony_provider.watching.task_output import (
    FIRST_PAUSE,
    OutputChunk,
    OutputDisplay,
    OutputFollower,
    OutputLines,
    OutputPosition,
    OutputSelection,
)

LIMIT = 64
STATUS = JobStatus(
    "application_1_0001",
    "digits",
    JobState.RUNNING,
    generation=1,
    leader="worker:0",
    tasks=[TaskStatus("worker", 0, TaskState.RUNNING)],
)


@attrs.define
class Job:
    """A job whose master has the logs of one task's containers, each whole."""

    logs: dict[int, bytes] = attrs.field(factory=lambda: {1: b""})
    problem: Exception | None = None
    asked: int = 0

    def output(self, _: str, attempt: int | None, after: int, *, seconds: float) -> OutputPiece:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        newest = max(self.logs)
        log = self.logs[attempt or newest]
        start = max(min(after, len(log)), len(log) - LIMIT)
        piece = LogPiece.cut(min(after, len(log)), start, log[start:])
        text = piece.data.decode("utf-8", "surrogateescape")
        return OutputPiece(attempt or newest, newest, piece.start, piece.end, text)


def follower(job: Job, position: OutputPosition | None = None) -> OutputFollower:
    given = cast(Any, job)
    return OutputFollower(given, "worker:0", position, seconds=1.0)


a_line = st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"") + b"\n")


@given(st.lists(st.lists(a_line, max_size=8), max_size=8), st.sets(st.integers(0, 8)))
def test_all_that_is_printed_is_given_once_or_said_to_be_missing(looks: list[list[bytes]], restarts: set[int]) -> None:
    job = Job()
    live = follower(job)
    found: dict[int, int] = {}
    for number, lines in enumerate(looks):
        if number in restarts:
            job.logs[max(job.logs) + 1] = b""
        attempt = max(job.logs)
        job.logs[attempt] += b"".join(lines)
        before = live.position
        for piece in live.new():
            assert piece.data in job.logs[attempt] or before.attempt != attempt
            assert piece.skipped == 0
            found[attempt] = found.get(attempt, 0) + piece.missed + len(piece.data)
    assert sum(found.values()) == sum(map(len, job.logs.values()))
    assert live.new() == []


def test_the_last_lines_before_a_restart_come_first() -> None:
    job = Job({1: b"one\n"})
    live = follower(job)
    assert live.new() == [OutputChunk(b"one\n")]
    job.logs = {1: b"one\nthe cause\n", 2: b"again\n"}
    assert live.new() == [OutputChunk(b"the cause\n"), OutputChunk(b"again\n", new_container=True)]
    assert live.position == OutputPosition(2, 6)


def test_of_many_containers_the_last_few_are_read() -> None:
    """A task that was replaced again and again, while its master could not be asked."""
    job = Job({1: b"one\n"})
    live = follower(job)
    live.new()
    job.logs = {1: b"one\nthe cause\n", **dict.fromkeys(range(2, 52), b"again\n")}
    job.asked = 0
    found = live.new()
    assert job.asked == 6
    assert found == [
        OutputChunk(b"the cause\n"),
        OutputChunk(b"again\n", new_container=True, skipped=45),
        *[OutputChunk(b"again\n", new_container=True)] * 4,
    ]
    assert live.position == OutputPosition(51, 6)
    shown = OutputLines()
    for piece in found:
        shown.add(piece.data, piece.missed, piece.skipped)
    assert shown.take(0.0) == ["… all of 45 containers left out", "the cause", *["again"] * 5]


def test_a_master_that_always_knows_a_newer_container_is_asked_no_more_than_for_the_last_few() -> None:
    """Seen: one such master had the looks of a whole triggerer end in its own, which filled the memory meanwhile."""

    class Endless(Job):
        def output(self, _: str, attempt: int | None, after: int, *, seconds: float) -> OutputPiece:
            self.asked += 1
            assert self.asked <= 12
            return OutputPiece(attempt or 1, (attempt or 1) + 1, 0, 4, "mine")

    job = Endless()
    live = follower(job)
    assert len(live.new()) == job.asked == 6
    assert live.position == OutputPosition(7)
    assert len(live.new()) == 6


def test_what_was_read_before_the_master_went_away_is_given() -> None:
    class Leaving(Job):
        def output(self, *arguments: Any, **more: Any) -> OutputPiece:
            self.problem = MasterOutOfReach("it is gone") if self.asked == 1 else None
            return super().output(*arguments, **more)

    live = follower(Leaving({1: b"one\n", 2: b"two\n"}), OutputPosition(1))
    assert live.new() == [OutputChunk(b"one\n")]
    assert live.problem == "it is gone"
    assert live.new() == [OutputChunk(b"two\n", new_container=True)]


def test_who_begins_at_the_end_sees_what_comes_then() -> None:
    job = Job({1: b"before\n" * 100})
    live = follower(job, OutputPosition.end())
    assert live.new() == []
    job.logs[1] += b"after\n"
    assert live.new() == [OutputChunk(b"after\n")]


def test_bytes_that_are_no_text_come_as_they_are() -> None:
    assert follower(Job({1: b"\xff\xfe\x00 text\n"})).new() == [OutputChunk(b"\xff\xfe\x00 text\n")]


def test_a_master_that_does_not_answer_is_asked_less_and_less() -> None:
    now = [0.0]
    job = Job(problem=MasterOutOfReach("no"))
    shown = OutputDisplay(OutputSelection(), clock=lambda: now[0])
    for second in range(300):
        now[0] = float(second)
        if shown.is_due(STATUS):
            shown.look(cast(Any, job), STATUS)
    assert 5 <= job.asked <= 8
    job.problem, job.logs = None, {1: b"here again\n"}
    now[0] += 60.0
    shown.look(cast(Any, job), STATUS)
    assert shown.lines()[-1] == "worker:0 | here again"
    assert shown.told() == {"worker:0": OutputPosition(1, 11)}
    assert FIRST_PAUSE > 0
    assert shown.is_due(STATUS)


def test_what_will_never_be_shown_is_said_once() -> None:
    problem = ClusterAuthError("you may not")
    shown = OutputDisplay(OutputSelection())
    shown.look(cast(Any, Job(problem=problem)), STATUS)
    [line] = shown.lines()
    assert "is not shown here: " in line
    assert not shown.is_due(STATUS)
