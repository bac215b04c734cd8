from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.am.event_log import EventLog, read_events
from tony_provider.runtime.am.session.recovery.history import merge


def test_events_in_order_after_where_the_job_came_from() -> None:
    log = EventLog({"dag": "retrain", "run": "r1"}, time_ms=1)
    log.append("allocated", "container_1 on node", "worker:0", time_ms=2)
    log.append("rendezvous", "generation 1", data={"generation": 1}, time_ms=3)
    log.append("verdict", "SUCCEEDED", time_ms=4)
    assert [json.loads(line) for line in log.content().splitlines()] == [
        {"time_ms": 1, "event": "application", "message": "", "labels": {"dag": "retrain", "run": "r1"}},
        {"time_ms": 2, "event": "allocated", "message": "container_1 on node", "task": "worker:0"},
        {"time_ms": 3, "event": "rendezvous", "message": "generation 1", "data": {"generation": 1}},
        {"time_ms": 4, "event": "verdict", "message": "SUCCEEDED"},
    ]


@given(st.lists(st.text(max_size=300), max_size=40))
def test_bounded_and_always_readable(messages: list[str]) -> None:
    log = EventLog({}, time_ms=0, most_bytes=1000)
    for number, message in enumerate(messages):
        log.append("note", message, time_ms=number)
    assert len(log.content()) < 1000 + 200
    events = [json.loads(line) for line in log.content().split(b"\n") if line]
    kept = [event["time_ms"] for event in events if event["event"] == "note"]
    assert kept == list(range(len(messages)))[len(messages) - len(kept) :]
    dropped = [event["message"] for event in events if event["event"] == "dropped"]
    assert dropped == ([f"{len(messages) - len(kept)} older events"] if len(kept) < len(messages) else [])


DATA = st.recursive(
    st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


def known(content: bytes) -> dict[str, Any]:
    """What a later application master makes of the data."""
    whole: dict[str, Any] = {}
    for event in read_events(content):
        whole = merge(whole, event.get("data", {}))
    return whole


@given(st.lists(DATA | st.none(), max_size=30), st.integers(0, 30), st.integers(200, 3000))
def test_later_master_goes_on_and_nothing_that_it_needs_is_dropped(
    every: list[dict[str, Any] | None], died_after: int, most_bytes: int
) -> None:
    """Whenever the first one dies, and however much of the log was dropped."""
    log = EventLog({"dag": "retrain"}, time_ms=0, most_bytes=most_bytes)
    expected: dict[str, Any] = {}
    for number, data in enumerate(every, start=1):
        if number == died_after:
            later = EventLog({"dag": "another"}, time_ms=99, most_bytes=most_bytes)
            later.take_over(log.content())
            assert later.content() == log.content()
            log = later
        log.append("note", "m", "worker:0", data=data, time_ms=number)
        expected = merge(expected, data or {})
    events = read_events(log.content())
    assert events[0]["labels"] == {"dag": "retrain"}
    assert known(log.content()) == expected
    dropped = sum(event["dropped"] for event in events if event["event"] == "dropped")
    assert dropped + sum(1 for event in events if event["event"] == "note") == len(every)
    assert [event["time_ms"] for event in events] == sorted(event["time_ms"] for event in events)


@pytest.mark.parametrize("damage", [b"{", b"[1]\n", b"\xff\n", b'{"time_ms": 3, "event"', b"null\n\n"])
def test_what_cannot_be_read_is_passed_over(damage: bytes) -> None:
    former = EventLog({"dag": "retrain"}, time_ms=1)
    former.append("rendezvous", "generation 1", data={"generation": 1}, time_ms=2)
    log = EventLog({}, time_ms=9)
    log.take_over(former.content() + damage)
    assert log.content() == former.content()


@given(st.binary(max_size=100))
def test_no_file_raises(content: bytes) -> None:
    log = EventLog({}, time_ms=9)
    log.take_over(content)
    log.append("recovering", "attempt 2", time_ms=10)
    assert read_events(log.content())[-1]["event"] == "recovering"
