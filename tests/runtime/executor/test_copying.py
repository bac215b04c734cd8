"""The parts of the mirror that need no process: its rate limit, its deadlines and its pauses."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.executor.checkpoint_container import CheckpointContainer, controlled_clock
from tests.runtime.executor.containers import job, until
from tony_provider.runtime.artifacts.upload import Throttle
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor import start_context
from tony_provider.runtime.executor.checkpoint_mirror import CheckpointMirror
from tony_provider.runtime.executor.master_link import MasterRequests
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder, StopRequest
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.jobspec.model import Role
from tony_provider.runtime.protocol import tony_pb2
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
        stopping = StopRequest()
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
    stopping = StopRequest()
    work: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(stopping.bound(work, stopping.kill_at))
    await asyncio.sleep(0)
    stopping.ask(1000, 0)
    stopping.ask(0, 0)
    assert not await asyncio.wait_for(waiting, 30)
    assert not work.cancelled()


# ---- the mirror's pauses -------------------------------------------------------------------------------------------


class Store(LocalStorage):
    """A storage whose next writes fail."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def write(self, uri: str, source: Source, **more: Any) -> int:
        if self.failures:
            self.failures -= 1
            raise StorageUnreachable(uri, "write", "it is gone")
        return super().write(uri, source, **more)


class Pauses(CheckpointMirror):
    """A mirror that notes its pauses before each upload instead of waiting, and whose uploads are all ordered."""

    def __init__(self, container: CheckpointContainer, store: Store) -> None:
        task = TaskAddress("worker", 0, Role.WORKER)
        described = SimpleNamespace(
            task_type="worker", index=0, job=job(""), description=SimpleNamespace(chain_dir=container.chain)
        )
        context = SimpleNamespace(container=described, checkpoints=container.directory, storage=store)
        self._commits = MasterRequests(self._hear)
        order = StartOrder(1, ClusterSpec(1, (task,)))
        super().__init__(cast(ExecutorContext, context), order, self._commits, self._hear, self._no_step)
        self.uploads: list[tony_pb2.CheckpointUploaded] = []
        self.pauses: list[float] = []  # seconds, before each upload
        self.troubles: set[str] = set()  # at each look
        self._waited = 0.0
        self._saves = 0

    async def _no_step(self) -> None:
        return None

    def _hear(self, message: tony_pb2.FromExecutor) -> None:
        state, uploaded = message.checkpoint_state, message.uploaded
        if message.WhichOneof("kind") == "uploaded":
            self.uploads.append(uploaded)
            answer = tony_pb2.CheckpointAnswer(request=uploaded.request, granted=True)
            asyncio.get_running_loop().call_soon(self._commits.answered, answer)
        elif any(entry.news for entry in state.entries):
            self._saves += 1
            uri = f"{self._chain}/checkpoints/save-{self._saves:06}-00000000"
            order = tony_pb2.TakeSnapshot(start=1, wanted=True, version=state.version, save=self._saves, uri=uri)
            asyncio.get_running_loop().call_soon(self.take, order)
            self.pauses.append(self._waited)
            self._waited = 0.0

    async def _wait(self, seconds: float) -> None:
        """Do not wait; a nudge ends a wait at once."""
        await asyncio.sleep(0)
        self._waited += 0.0 if self._nudge.is_set() else seconds
        self._nudge.clear()
        if self._failed is not None:
            self.troubles.add(self.problem)


async def test_a_failed_upload_is_repeated_after_growing_pauses(tmp_path: Path) -> None:
    with controlled_clock() as clock:
        container = CheckpointContainer.make(tmp_path / "container", f"file://{tmp_path}/chain", clock)
        container.directory.empty()
        container.begin()
        (container.path / "last.bin").write_text("one")
        container.look(6)
        mirror = Pauses(container, Store(failures=9))
        mirror.start()
        await until(lambda: mirror.uploads and not mirror.problem, "it is stored")
        await mirror.close()
        assert mirror.pauses == [1.5, 3, 6, 12, 24, 48, 60, 60, 60, 60]
        [trouble] = mirror.troubles
        assert trouble.startswith("its newest checkpoint has not been stored since ")
        assert mirror.problem == ""


async def test_the_last_uploads_are_repeated_after_short_pauses(tmp_path: Path) -> None:
    with controlled_clock() as clock:
        container = CheckpointContainer.make(tmp_path / "container", f"file://{tmp_path}/chain", clock)
        container.directory.empty()
        container.begin()
        (container.path / "last.bin").write_text("one")
        mirror = Pauses(container, Store(failures=4))
        mirror.start()
        assert await mirror.finish(StopRequest(), lambda: time.monotonic() + 60, succeeded=True) == ""
        await mirror.close()
        assert len(mirror.uploads) == 1
        assert mirror.pauses == [0, 3, 3, 3, 3]


@pytest.mark.parametrize(("nice", "expected"), [(0, 10), (10, 10), (15, 15)])
def test_a_background_thread_never_raises_the_priority(
    monkeypatch: pytest.MonkeyPatch, nice: int, expected: int
) -> None:
    """The kernel refuses that to ordinary users; YARN may start containers with any priority."""
    given: list[int] = []

    def set_priority(_which: int, _who: int, priority: int) -> None:
        given.append(priority)
        raise PermissionError("sandbox")

    monkeypatch.setattr(os, "getpriority", lambda *_: nice)
    monkeypatch.setattr(os, "setpriority", set_priority)
    with ThreadPoolExecutor(1, "test", start_context._lower_priority) as pool:
        assert pool.submit(lambda: 1).result() == 1
    assert given == [expected]
