"""An application master that its cluster takes away, or has given up, leaves tasks and files to its successor."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.chains import OTHER, own, ownership
from tests.runtime.am.local_resource_manager.jobs import Staged, stage
from tests.runtime.history.events import names_in
from tony_provider.runtime.am import lifecycle, master, store_writer
from tony_provider.runtime.am.lifecycle import MasterContext, serve
from tony_provider.runtime.am.local_resource_manager import LocalResourceManager
from tony_provider.runtime.am.resource_manager import AttemptOver, ConnectionLost, ConnectionRestored, Event
from tony_provider.runtime.checkpoint.stored_checkpoint import Stop
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.protocol.http_messages import stored_logs
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.status import FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage import LocalStorage

JOB = JobSpec("standalone", {"worker": TaskSpec("exec sleep 1000", instances=2)})
DEADLINE = 60
YARN_NOTICE = 0.25


class Cluster(LocalResourceManager):
    """As YARN, in what it says to a master."""

    notice = YARN_NOTICE

    def say(self, event: Event) -> None:
        self._events.put(event)

    def kept(self) -> int:
        """How many containers run undisturbed."""
        return sum(not process._stopped and process._process.returncode is None for process in self._processes.values())


@attrs.define(eq=False)
class Running:
    staged: Staged
    cluster: Cluster
    serving: asyncio.Future[FinalStatus]
    store: Path

    def file(self, name: str) -> JobStatus | None:
        path = self.store / name
        return load_json(path.read_bytes(), JobStatus) if path.exists() else None

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not look():  # noqa: ASYNC110 - other processes make it true
                await asyncio.sleep(0.02)

    async def until_running(self) -> None:
        await self.until(lambda: (status := self.file(contract.STATUS_FILE)) is not None and status.state == "RUNNING")

    def supersede(self) -> None:
        """Another master has registered and left its address."""
        key = self.staged.credentials.secrets[contract.SECRET_ADDRESS_KEY]
        ownership(self.staged.description, attempt=2, key=key).announce(Address("there", 20001))

    async def end(self) -> FinalStatus:
        return await asyncio.wait_for(asyncio.shield(self.serving), DEADLINE)

    def left_to_others(self) -> bool:
        """Neither tasks nor files were touched, and the cluster was told nothing."""
        return (
            self.cluster.kept() == 2
            and (self.store / contract.LAUNCH_DIR).exists()
            and read_report(self.cluster._root) is None
        )


@pytest.fixture
def checks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in ("_OWNERSHIP_SECONDS", "_CUT_OFF_SECONDS"):
        monkeypatch.setattr(master, seconds, 0.05)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with run(JOB, tmp_path) as running:
        yield running


@asynccontextmanager
async def run(job: JobSpec, tmp_path: Path) -> AsyncIterator[Running]:
    staged = stage(tmp_path, job)
    assert staged.description.local
    cluster = Cluster(staged.description, staged.description.local)
    context = MasterContext.of_process(staged.environment)
    serving = asyncio.ensure_future(serve(context, LocalStorage(), cluster))
    running = Running(staged, cluster, serving, tmp_path / "store")
    try:
        await running.until_running()
        yield running
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await cluster.close()


async def test_attempt_that_is_over_leaves_a_result_in_case_and_everything_else(running: Running) -> None:
    running.cluster.say(AttemptOver("the ResourceManager has ended this attempt"))
    assert await running.end() is FinalStatus.KILLED
    assert running.left_to_others()
    result, status = running.file(contract.RESULT_FILE), running.file(contract.STATUS_FILE)
    assert result
    assert result.failure
    assert (result.state, result.failure.kind) == (JobState.KILLED, FailureKind.KILLED)
    assert "has ended this attempt" in result.message
    assert status
    assert not status.state.is_final


@pytest.mark.long
async def test_attempt_that_is_over_leaves_no_result_to_its_successor(running: Running) -> None:
    running.supersede()
    running.cluster.say(AttemptOver("the ResourceManager has ended this attempt"))
    assert await running.end() is FinalStatus.KILLED
    assert running.left_to_others()
    assert running.file(contract.RESULT_FILE) is None


async def test_master_that_its_cluster_cannot_reach_notices_its_successor(checks_soon: None, running: Running) -> None:
    running.cluster.say(ConnectionLost("nobody answers"))
    running.supersede()
    assert await running.end() is FinalStatus.KILLED
    assert running.left_to_others()
    assert running.file(contract.RESULT_FILE) is None


@pytest.mark.long
async def test_master_that_its_cluster_cannot_reach_notices_another_application(
    checks_soon: None, running: Running, tmp_path: Path
) -> None:
    """Which trains in its place, since the cluster has ended this one and could not tell it."""
    own(tmp_path, OTHER)
    running.cluster.say(ConnectionLost("nobody answers"))
    await running.end()
    result = running.file(contract.RESULT_FILE)
    assert result
    assert result.failure
    assert result.failure.kind is FailureKind.FENCED


@pytest.mark.long
async def test_a_cluster_that_answers_again_is_believed(running: Running) -> None:
    running.cluster.say(ConnectionLost("nobody answers"))
    running.cluster.say(ConnectionRestored())
    await running.until(lambda: "cluster_reachable" in names_in(running.store))
    os.kill(os.getpid(), signal.SIGTERM)
    await running.until(lambda: running.file(contract.RESULT_FILE) is not None)


async def test_sigterm_with_a_moment_to_live_stops_no_task(running: Running) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await running.until(lambda: running.file(contract.RESULT_FILE) is not None)
    result = running.file(contract.RESULT_FILE)
    assert result
    assert result.state is JobState.KILLED
    assert "SIGTERM to its application master" in result.message
    assert running.left_to_others()


async def test_sigterm_that_nobody_follows_up_is_a_wish_to_end(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_ALIVE_AFTER_ALL", 0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running.end() is FinalStatus.KILLED
    report = read_report(running.cluster._root)
    assert report
    assert report.final_status is FinalStatus.KILLED
    assert not (running.store / contract.LAUNCH_DIR).exists()
    assert running.cluster.kept() == 0


async def test_sigterm_to_a_master_that_has_a_successor_leaves_nothing(running: Running) -> None:
    running.supersede()
    running.cluster.say(ConnectionLost("nobody answers"))
    await running.until(lambda: "cluster_unreachable" in names_in(running.store))
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running.end() is FinalStatus.KILLED
    assert running.file(contract.RESULT_FILE) is None
    assert running.left_to_others()


async def test_an_order_to_stop_on_the_store_ends_the_job(checks_soon: None, running: Running, tmp_path: Path) -> None:
    """For a kill while no server of YARN answers."""
    own(tmp_path, running.staged.description.application_id, stop=Stop("Killed by Airflow: marked as failed"))
    assert await running.end() is FinalStatus.KILLED
    result = running.file(contract.RESULT_FILE)
    assert result
    assert result.failure
    assert (result.failure.kind, result.failure.message) == (FailureKind.KILLED, "Killed by Airflow: marked as failed")


@pytest.mark.parametrize("is_superseded", [False, True])
async def test_the_log_of_a_task_that_has_ended_is_stored_first(
    checks_soon: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_superseded: bool
) -> None:
    """Its executor has sent the log and ended, so nobody else has it."""
    monkeypatch.setattr(store_writer, "LATEST", 3600.0)
    ended = TaskSpec("echo I am done")
    async with run(attrs.evolve(JOB, tasks={"short": ended, **JOB.tasks}), tmp_path) as running:
        await running.until(lambda: running.cluster.kept() == 2 and len(running.cluster._processes) == 2)
        assert stored_logs(LocalStorage(), str(running.store / "logs")) == {}
        if is_superseded:
            running.cluster.say(ConnectionLost("nobody answers"))
            running.supersede()
        else:
            running.cluster.say(AttemptOver("the ResourceManager has ended this attempt"))
        assert await running.end() is FinalStatus.KILLED
        assert [path.suffix for path in (running.store / "logs").iterdir()] == [contract.BUNDLE_ENDING]
        log = stored_logs(LocalStorage(), str(running.store / "logs"))["short-0.log"]
        assert b"I am done" in log.read(0, log.size)
