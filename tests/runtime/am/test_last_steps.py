"""The end of an application master: its one result, whatever fails or is signalled meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.am.local_resource_manager.jobs import Staged, stage
from tony_provider.runtime.am.lifecycle import MasterContext, serve
from tony_provider.runtime.am.local_resource_manager import LocalResourceManager
from tony_provider.runtime.am.resource_manager import Completed, Event
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage import LocalStorage, uris
from tony_provider.runtime.storage.base import Source

JOB = JobSpec("standalone", {"worker": TaskSpec("true", instances=2)})
DEADLINE = 60
YARN_NOTICE = 0.25


class WatchedStorage(LocalStorage):
    """Remembers the results that it was given, one after the other, and which files have appeared."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[JobState] = []
        self.appeared: list[str] = []

    def write(self, uri: str, source: Source, **more: Any) -> int:
        if uris.name(uri) == contract.RESULT_FILE:
            assert isinstance(source, bytes)
            self.results.append(load_json(source, JobStatus).state)
        written = super().write(uri, source, **more)
        self.appeared.append(uris.name(uri))
        return written


class FaultyDriverStorage(WatchedStorage):
    """Stands for a store whose driver raises errors of its own for one of the files."""

    def write(self, uri: str, source: Source, **more: Any) -> int:
        if uris.name(uri) == contract.STATUS_FILE:
            raise ZeroDivisionError("a driver's fault")
        return super().write(uri, source, **more)


class SignalledWhileTasksEnd(LocalResourceManager):
    """As on YARN, where somebody ends the application while its containers are on their way out."""

    notice = YARN_NOTICE
    signalled = False

    async def events(self) -> AsyncIterator[Event]:
        async for event in super().events():
            if isinstance(event, Completed) and not self.signalled:
                await self.signal()
            yield event

    async def signal(self) -> None:
        self.signalled = True
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(5):
            await asyncio.sleep(0)  # the loop comes to the signal


class SignalledAtTheEnd(SignalledWhileTasksEnd):
    """The same, once the application master has written its result and is taking its leave."""

    async def events(self) -> AsyncIterator[Event]:
        async for event in LocalResourceManager.events(self):
            yield event

    async def finish(self, status: FinalStatus, diagnostics: str) -> None:
        await self.signal()
        await super().finish(status, diagnostics)


async def run(staged: Staged, storage: LocalStorage, kind: type[LocalResourceManager]) -> FinalStatus:
    assert staged.description.local
    manager = kind(staged.description, staged.description.local)
    context = MasterContext.of_process(staged.environment)
    try:
        return await asyncio.wait_for(serve(context, storage, manager), DEADLINE)
    finally:
        await manager.close()
        await asyncio.get_running_loop().shutdown_default_executor()  # every write under way is over


@pytest.mark.parametrize("kind", [SignalledWhileTasksEnd, SignalledAtTheEnd])
async def test_a_signal_after_the_verdict_does_not_change_it(
    tmp_path: Path, kind: type[SignalledWhileTasksEnd]
) -> None:
    storage = WatchedStorage()
    assert await run(stage(tmp_path, JOB), storage, kind) is FinalStatus.SUCCEEDED
    assert set(storage.results) == {JobState.SUCCEEDED}
    result = load_json((tmp_path / "store" / contract.RESULT_FILE).read_bytes(), JobStatus)
    assert result.state is JobState.SUCCEEDED


async def test_whoever_sees_the_result_finds_everything_else(tmp_path: Path) -> None:
    storage = WatchedStorage()
    await run(stage(tmp_path, JOB), storage, LocalResourceManager)
    (at,) = (number for number, name in enumerate(storage.appeared) if name == contract.RESULT_FILE)
    assert contract.STATUS_FILE in storage.appeared[:at]
    assert storage.appeared[at + 1 :] == []
    written = load_json((tmp_path / "store" / contract.STATUS_FILE).read_bytes(), JobStatus)
    assert written.state is JobState.SUCCEEDED


async def test_a_fault_while_publishing_costs_neither_result_nor_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyDriverStorage()
    staged = stage(tmp_path, JOB)
    assert staged.description.local
    assert await run(staged, storage, LocalResourceManager) is FinalStatus.SUCCEEDED
    assert storage.results == [JobState.SUCCEEDED]
    report = read_report(Path(staged.description.local.root))
    assert report
    assert report.final_status is FinalStatus.SUCCEEDED
    assert "(status.json could not be written to" in report.diagnostics
    assert not (tmp_path / "store" / contract.LAUNCH_DIR).exists()
    (trace, *_) = [record for record in caplog.records if record.exc_info and record.levelno == logging.ERROR]
    assert trace.exc_info
    assert trace.exc_info[0] is ZeroDivisionError
