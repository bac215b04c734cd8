"""The parts of the mirror that need no process: its pace, its deadlines, files that change while they are copied."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.artifacts.throttle import Throttle
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.checkpoint.formats import find
from tony_provider.runtime.checkpoint.snapshot import SnapshotChanged, take
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.upload import AT_ONCE, SMALL, SMALL_AT_ONCE, Upload
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


DEADLINE = 60


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


class Crowded(LocalStorage):
    """Knows how many files were on their way at the same time; each waits until so many are, or nobody comes."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self._all_here = threading.Event()
        self._lock = threading.Lock()
        self._until = until
        self._here = 0
        self.most = 0

    def write(self, uri: str, source: Source, **more: Any) -> int:
        with self._lock:
            self._here += 1
            self.most = max(self.most, self._here)
            if self._here == self._until:
                self._all_here.set()
        assert self._all_here.wait(DEADLINE)
        with self._lock:
            self._here -= 1
        return super().write(uri, source, **more)


@pytest.mark.parametrize(("size", "at_once"), [(SMALL, SMALL_AT_ONCE), (SMALL + 1, AT_ONCE)])
def test_more_small_files_are_sent_at_once_than_large_ones(tmp_path: Path, size: int, at_once: int) -> None:
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    names = [f"weights-{number:02d}" for number in range(SMALL_AT_ONCE + 1)]
    for name in names:
        (directory / name).write_bytes(bytes(size))
    files = [{"path": name, "size": size} for name in names]
    (directory / "step-5.tony.json").write_text(json.dumps({"step": 5, "entry": names[0], "files": files}))
    storage = Crowded(until=at_once)
    assert len(upload(directory, storage, tmp_path / "store")) >= len(names)
    assert at_once <= storage.most <= at_once + 1  # the manifest is a small one
