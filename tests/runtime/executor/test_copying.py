"""The parts of the mirror that need no process: its pace, its deadlines, files that change while they are copied."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.checkpoint.errors import Cancelled
from tony_provider.runtime.checkpoint.formats import find
from tony_provider.runtime.checkpoint.snapshot import SnapshotChanged, take
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.throttle import Throttle
from tony_provider.runtime.executor.upload import Upload
from tony_provider.runtime.storage import LocalStorage, Source, StorageUnreachable

RATE = 1000.0  # bytes a second


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3000)), min_size=1, max_size=50))
def test_no_more_goes_than_the_limit_allows(pieces: list[tuple[float, int]]) -> None:
    throttle = Throttle(RATE)
    now, sent = 0.0, 0
    for pause, count in pieces:
        now += pause
        now += max(0.0, throttle.reserve(count, now))
        sent += count
        assert sent <= RATE * (now + 0.25) + 1e-6  # what a pause allows to go at once


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=50))
def test_the_limit_is_used_up(counts: list[int]) -> None:
    throttle = Throttle(RATE)
    waits = [throttle.reserve(count, 0.0) for count in counts]  # from several threads at once
    assert waits[-1] == pytest.approx(sum(counts) / RATE - 0.25)


def test_without_a_limit_nobody_waits() -> None:
    Throttle(None).take(1 << 40, threading.Event())


def test_who_waits_can_be_told_to_stop() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        Throttle(1).take(1 << 40, cancelled)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=8))
def test_a_stop_that_is_told_again_can_only_come_sooner(told: list[tuple[float, float]]) -> None:
    async def ask() -> None:
        stopping = ProcessStop()
        ended = time.monotonic()
        assert stopping.copy_until(ended, 60) == ended + 60
        kill, copies = float("inf"), float("inf")
        for grace, copy_seconds in told:
            stopping.ask(grace, copy_seconds)
            assert stopping.kill_at() <= kill
            assert stopping.copy_until(ended, 60) <= copies
            kill, copies = stopping.kill_at(), stopping.copy_until(ended, 60)
        assert copies >= stopping.asked_at

    asyncio.run(ask())


async def test_a_deadline_that_comes_to_be_earlier_is_kept() -> None:
    stopping = ProcessStop()
    work: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(stopping.bound(work, stopping.kill_at))
    await asyncio.sleep(0)
    stopping.ask(1000, 0)
    stopping.ask(0, 0)
    assert not await asyncio.wait_for(waiting, 30)
    assert not work.cancelled()


class Meddling(LocalStorage):
    """Something else happens while a file is written."""

    def __init__(self, meddle: Any) -> None:
        super().__init__()
        self._meddle = meddle

    def write(self, uri: str, source: Source, **more: Any) -> int:
        self._meddle()
        return super().write(uri, source, **more)


def checkpoint(directory: Path) -> Path:
    directory.mkdir()
    (directory / "weights").write_bytes(b"a" * 1000)
    manifest = '{"step": 5, "entry": "weights", "files": [{"path": "weights", "size": 1000}]}'
    (directory / "step-5.tony.json").write_text(manifest)
    return directory


def upload(directory: Path, storage: LocalStorage, target: Path) -> list[str]:
    [found] = find(directory).complete
    snapshot = take(directory, found, directory.with_name("snapshot"))
    return [file.path for file in Upload(storage, Throttle(None)).run(snapshot, f"file://{target}", overwrite=False)]


def test_a_file_that_is_rewritten_while_it_is_copied_is_noticed(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "checkpoints")
    storage = Meddling(lambda: (directory / "weights").write_bytes(b"b" * 1000))
    with pytest.raises(SnapshotChanged, match="weights"):
        upload(directory, storage, tmp_path / "store")


def test_a_file_that_is_removed_while_it_is_copied_does_no_harm(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "checkpoints")
    storage = Meddling(lambda: (directory / "weights").unlink(missing_ok=True))
    assert upload(directory, storage, tmp_path / "store") == ["step-5.tony.json", "weights"]
    assert (tmp_path / "store" / "weights").read_bytes() == b"a" * 1000


def test_the_first_failure_ends_all(tmp_path: Path) -> None:
    def fail() -> None:
        raise StorageUnreachable("file:///", "write", "it is gone")

    with pytest.raises(StorageUnreachable):
        upload(checkpoint(tmp_path / "checkpoints"), Meddling(fail), tmp_path / "store")
