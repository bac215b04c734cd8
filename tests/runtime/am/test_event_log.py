from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.am.event_log import EventLog


def test_events_in_order_after_where_the_job_came_from() -> None:
    log = EventLog({"dag": "retrain", "run": "r1"}, time_ms=1)
    log.append("allocated", "container_1 on node", "worker:0", time_ms=2)
    log.append("verdict", "SUCCEEDED", time_ms=3)
    assert [json.loads(line) for line in log.content().splitlines()] == [
        {"time_ms": 1, "event": "application", "message": "", "labels": {"dag": "retrain", "run": "r1"}},
        {"time_ms": 2, "event": "allocated", "message": "container_1 on node", "task": "worker:0"},
        {"time_ms": 3, "event": "verdict", "message": "SUCCEEDED"},
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
