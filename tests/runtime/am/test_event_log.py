"""The event log on a store: what is noted is there, in few files that are written once, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.am.chains import describe, ownership
from tests.runtime.history.events import events_in, files_in
from tony_provider.runtime.am.records import EventBacklog, EventLog
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.session.recovery import merge_data
from tony_provider.runtime.application_history import encode_event, event_segments
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable, uris
from tony_provider.runtime.storage.base import Source

FIRST = {
    "time_ms": 1,
    "event": "application",
    "message": "",
    "labels": {"dag": "retrain", "run": "r1"},
    "warm_start": None,
}


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


class Store(LocalStorage):
    """Knows which files were written, and refuses some: before or after it has done as it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.bytes = 0
        self.refuses = ""

    def write(self, uri: str, source: Source, **more: Any) -> int:
        if self.refuses == "before":
            raise StorageUnreachable(uri, "write", "nobody answers")
        size = super().write(uri, source, **more)
        self.written.append(uris.name(uri))
        self.bytes += size
        if self.refuses == "after":
            raise StorageUnreachable(uri, "write", "its answer was lost")
        return size

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        if self.refuses:
            raise StorageUnreachable(uri, "remove", "nobody answers")
        return super().remove(uri, recursive=recursive)


@attrs.define
class Work:
    """Masters of one application, one after the other."""

    directory: Path
    limits: dict[str, int] = attrs.field(factory=dict)
    store: Store = attrs.field(factory=Store)
    attempt: int = 0
    number: int = 0
    log: EventLog = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.next_master()

    def next_master(self) -> None:
        self.attempt += 1
        labels = {"dag": "retrain", "run": "\u202er\x1b[2J1"}  # what would turn a page around is left out
        description = describe(self.directory, application_dir=self.directory.as_uri(), labels=labels)
        former = event_segments(self.store, self.directory.as_uri())
        self.log = EventLog(ownership(description, attempt=self.attempt, storage=self.store), former, time_ms=1)
        for name, limit in self.limits.items():
            setattr(self.log, name, limit)

    def note(self, data: dict[str, Any] | None = None) -> None:
        self.number += 1
        self.log.append(Note("note", "m", "worker:0", data or {}), self.number + 1)

    def write(self) -> bool:
        return _run(self.log.write())

    def finish(self) -> bool:
        return _run(self.log.finish())

    def noted(self) -> list[int]:
        """The numbers of the notes that are on the store."""
        return [event["time_ms"] - 1 for event in events_in(self.directory) if event["event"] == "note"]


_loop = asyncio.new_event_loop()


def _run(work: Coroutine[Any, Any, bool]) -> bool:
    return _loop.run_until_complete(work)


def test_events_in_order_after_where_the_job_came_from(directory: Path) -> None:
    work = Work(directory)
    work.log.append(Note("allocated", "container_1 on node", "worker:0"), 2)
    assert work.write()
    work.log.append(Note("rendezvous", "generation 1", data={"generation": 1}), 3)
    assert work.finish()
    assert events_in(directory) == [
        FIRST,
        {"time_ms": 2, "event": "allocated", "message": "container_1 on node", "task": "worker:0"},
        {"time_ms": 3, "event": "rendezvous", "message": "generation 1", "data": {"generation": 1}},
    ]
    assert [file.name for file in files_in(directory)] == ["events-1-0000001-0000003.jsonl.gz"]


def test_a_job_of_weeks_has_few_files_none_of_which_was_written_twice(directory: Path) -> None:
    work = Work(directory, {"size_limit": 20_000, "merge_limit": 8000})
    most = 0
    for _ in range(500):
        work.note()
        assert work.write()
        most = max(most, len(files_in(directory)))
    assert work.noted() == list(range(1, 501))
    assert len(work.store.written) == len(set(work.store.written))
    assert most <= 40
    assert work.store.bytes < 10 * 500 * len(encode_event(events_in(directory)[-1]))
    assert work.finish()
    assert work.noted() == list(range(1, 501))
    assert sum(file.stat().st_size for file in files_in(directory)) <= 20_000


def test_old_events_go_and_say_how_many_they_were(directory: Path) -> None:
    work = Work(directory, {"size_limit": 2500, "merge_limit": 2000})
    for number in range(200):
        work.note({"tasks": {"worker:0": {"attempt": number}}, f"key-{number % 3}": number})
        assert work.write()
    assert sum(file.stat().st_size for file in files_in(directory)) <= 2500
    first, dropped, *others = events_in(directory)
    assert first == FIRST
    assert dropped["event"] == "dropped"
    assert dropped["dropped"] + len(others) == 200
    assert [event["time_ms"] for event in others] == list(range(dropped["time_ms"] + 1, 202))


def test_what_the_store_does_not_take_is_written_later(directory: Path) -> None:
    work = Work(directory)
    for refuses in ("before", "after", "before", "after"):
        work.store.refuses = refuses
        work.note()
        assert not work.write()
        assert work.log.trouble
        work.store.refuses = ""
        work.note()
        assert work.write()
    assert not work.log.trouble
    assert work.noted() == list(range(1, 9))
    assert work.finish()
    assert len(files_in(directory)) == 1


def test_while_the_store_takes_nothing_the_oldest_are_given_up(directory: Path) -> None:
    work = Work(directory)
    work.log._backlog = EventBacklog(most_bytes=1000)
    work.log._backlog.add(encode_event(FIRST))
    for _ in range(100):
        work.note({"a": 1})
    assert work.write()
    first, dropped, *others = events_in(directory)
    assert first == FIRST
    assert (dropped["dropped"] + len(others), dropped["data"]) == (100, {"a": 1})
    work.note()
    assert work.write()
    assert len(events_in(directory)) == len(others) + 3


VALUES = st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
# A key has either objects or other values, as in the session's events: see merge_data.
DATA = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": VALUES, "c": OBJECTS, "d": st.dictionaries(st.sampled_from("ab"), OBJECTS)}
)
STEPS = st.lists(DATA | st.sampled_from(["write", "before", "after", "killed", "killed after"]), max_size=60)


@settings(max_examples=50, deadline=None)
@given(STEPS, st.sampled_from([300, 1000, 100_000]), st.sampled_from([0, 500, 100_000]))
def test_whoever_dies_nothing_is_there_twice_and_nothing_that_was_kept_is_lost(
    steps: list[dict[str, Any] | str], most_bytes: int, merged: int
) -> None:
    """``killed``: the master is, with what it had not written; ``after``: it had, but for removing what is useless.

    ``before`` and ``after`` alone: see Store.
    """
    with TemporaryDirectory() as path:
        work = Work(Path(path), {"size_limit": most_bytes, "merge_limit": merged})
        kept: list[dict[str, Any]] = []  # data of the notes on the store
        waiting: list[dict[str, Any]] = []
        for step in steps:
            if isinstance(step, dict):
                work.note(step)
                waiting.append(step)
            elif step == "killed" and not kept:
                continue  # it has not left a file
            elif step.startswith("killed"):
                if step == "killed after":
                    work.store.refuses = "after"
                    work.write()
                    work.store.refuses = ""
                    kept, waiting = kept + waiting, []
                work.next_master()
                work.number -= len(waiting)
                waiting = []
            else:
                work.store.refuses = step if step in ("before", "after") else ""
                work.write()
                work.store.refuses = ""
                if step == "write":
                    kept, waiting = kept + waiting, []
                elif step == "after" and waiting:
                    assert work.write()
                    kept, waiting = kept + waiting, []
        assert work.finish()
        kept += waiting
        events = events_in(Path(path))
        assert events[0] == FIRST
        known: dict[str, Any] = {}
        for event in events:
            known = merge_data(known, event.get("data", {}))
        expected: dict[str, Any] = {}
        for data in kept:
            expected = merge_data(expected, data)
        assert known == expected
        dropped = sum(event["dropped"] for event in events if event["event"] == "dropped")
        assert dropped + len(work.noted()) == len(kept)
        assert work.noted() == sorted(set(work.noted()))
