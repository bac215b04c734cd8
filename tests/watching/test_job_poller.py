"""JobPoller against a scripted cluster: a thousand jobs, outages and hanging calls cannot be had on the real one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import attrs
import pytest

from tests.operators.statuses import application, status
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageUnreachable
from tony_provider.watching import job_poller as poller_module
from tony_provider.watching.job_poller import FollowedJob, JobPoller, PollingPace, following
from tony_provider.watching.observation import Observation, Peer, peer_of_error
from tony_provider.watching.task_output import OutputDisplay, OutputSelection

DEADLINE = 20.0
FAST = PollingPace(list_interval=0.02, details_per_second=100.0)


class ScriptedCluster:
    """Stands for the cluster behind the hooks."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.closed = 0
        self.fault: Exception | None = None
        self.store_fault: Exception | None = None
        self.odd = ""
        self.asked = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def now(self) -> float:
        return time.time()

    def live(self) -> list[Application]:
        self.calls["live"] += 1
        self.asked.set()
        self.gate.wait(DEADLINE)
        if self.fault is not None:
            raise self.fault
        return [attrs.evolve(application(), id=each) for each in sorted(self.running)]

    def application(self, application_id: str) -> Application:
        self.calls[application_id] += 1
        state = "RUNNING" if application_id in self.running else "FINISHED"
        return attrs.evolve(application(state), id=application_id)

    def job_status(self, _: Identity, application_id: str, *, may_have_ended: bool) -> JobStatus:
        self.calls[f"status of {application_id}"] += 1
        if application_id == self.odd:
            raise ZeroDivisionError(application_id)
        if self.store_fault is not None:
            raise self.store_fault
        return status("RUNNING" if application_id in self.running else "SUCCEEDED")

    def close(self) -> None:
        self.closed += 1


class OpeningHook:
    """Stands for a hook that asks the ResourceManager for its file system when it is opened."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self._is_open = self._is_closed = False

    def __getattr__(self, name: str) -> object:
        if not self._is_open and self._cluster.fault is not None:
            raise self._cluster.fault
        self._is_open = True
        assert not self._is_closed, "a closed hook is used"
        return getattr(self._cluster, name)

    def close(self) -> None:
        self._is_closed = True
        self._cluster.closed += 1


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster()


@asynccontextmanager
async def poller_of(cluster: ScriptedCluster, pace: PollingPace = FAST) -> AsyncIterator[JobPoller]:
    poller = JobPoller(lambda: cast(TonyHook, OpeningHook(cluster)), pace)
    try:
        yield poller
    finally:
        await poller.close()


def job(cluster: ScriptedCluster, number: int, interval: float = 0.0) -> FollowedJob:
    application_id = f"application_1700000000000_{number:04}"
    cluster.running.add(application_id)
    return FollowedJob(Identity("x", str(number)), application_id, interval)


async def seen(followed: FollowedJob, wanted: Callable[[Observation], bool]) -> Observation:
    async with asyncio.timeout(DEADLINE):
        while (observation := await followed.next(DEADLINE)) is None or not wanted(observation):
            pass
    return observation


def is_final(observation: Observation) -> bool:
    return observation.application is not None and observation.application.is_final


async def test_one_list_serves_all_jobs_and_only_the_one_that_has_ended_is_asked_for(cluster: ScriptedCluster) -> None:
    never = PollingPace(FAST.list_interval, details_per_second=0.001)
    jobs = [job(cluster, number) for number in range(100)]
    async with poller_of(cluster, never) as poller:
        for each in jobs:
            poller.follow(each)
        for each in jobs:
            await seen(each, lambda observation: observation.application is not None)
        assert cluster.calls.keys() == {"live"}
        cluster.running.remove(jobs[7].application_id)
        ended = await seen(jobs[7], is_final)
        assert ended.whole
        assert ended.status is not None
        asked = {name for name, count in cluster.calls.items() if count}
        assert asked == {"live", jobs[7].application_id, f"status of {jobs[7].application_id}"}


async def test_details_are_looked_at_in_turn(cluster: ScriptedCluster) -> None:
    jobs = [job(cluster, number) for number in range(10)]
    async with poller_of(cluster) as poller:
        for each in jobs:
            poller.follow(each)
        for each in jobs:
            await seen(each, lambda observation: observation.status is not None)
        looks = [cluster.calls[f"status of {each.application_id}"] for each in jobs]
        assert max(looks) - min(looks) <= 1
        assert not cluster.calls[jobs[0].application_id]


async def test_a_job_is_not_looked_at_more_often_than_it_wants(cluster: ScriptedCluster) -> None:
    patient, eager = job(cluster, 1, interval=3600.0), job(cluster, 2)
    async with poller_of(cluster) as poller:
        poller.follow(patient)
        poller.follow(eager)
        for _ in range(20):
            await seen(eager, lambda observation: observation.whole)
        assert cluster.calls[f"status of {patient.application_id}"] == 1


async def test_an_outage_is_told_and_passes_with_a_new_hook(cluster: ScriptedCluster) -> None:
    followed = job(cluster, 1)
    async with poller_of(cluster) as poller:
        cluster.fault = ClusterUnreachable("nobody answers")
        poller.follow(followed)
        assert (await seen(followed, lambda observation: observation.outage is not None)).application is None
        cluster.fault = None
        await seen(followed, lambda observation: observation.outage is None and observation.application is not None)
        assert cluster.closed >= 1


async def test_a_list_does_not_hide_that_the_store_is_away(cluster: ScriptedCluster) -> None:
    followed = job(cluster, 1)
    async with poller_of(cluster) as poller:
        poller.follow(followed)
        await seen(followed, lambda observation: observation.status is not None)
        cluster.store_fault = StorageUnreachable("hdfs://x", "read", "no")
        await seen(followed, lambda observation: observation.outage is not None)
        lists = cluster.calls["live"]
        async with asyncio.timeout(DEADLINE):
            while cluster.calls["live"] < lists + 3:
                assert (told := await followed.next(DEADLINE)) is not None
                assert told.outage is not None
        cluster.store_fault = None
        await seen(followed, lambda observation: observation.outage is None)


async def test_the_store_does_not_hide_that_the_cluster_is_away(cluster: ScriptedCluster) -> None:
    followed = job(cluster, 1)
    async with poller_of(cluster) as poller:
        poller.follow(followed)
        await seen(followed, lambda observation: observation.status is not None)
        cluster.fault = ClusterUnreachable("nobody answers")
        await seen(followed, lambda observation: observation.outage is not None)
        reads = cluster.calls[f"status of {followed.application_id}"]
        async with asyncio.timeout(DEADLINE):
            while cluster.calls[f"status of {followed.application_id}"] < reads + 3:
                assert (told := await followed.next(DEADLINE)) is not None
                assert told.outage is not None
                assert not told.whole
        cluster.fault = None
        await seen(followed, lambda observation: observation.outage is None)


async def test_only_the_cluster_is_silent_if_the_resourcemanager_does_not_answer(cluster: ScriptedCluster) -> None:
    followed = job(cluster, 1)
    async with poller_of(cluster) as poller:
        poller.follow(followed)
        await seen(followed, lambda observation: observation.status is not None)
        cluster.fault = ClusterUnreachable("nobody answers")
        await seen(followed, lambda observation: observation.outage is not None)
        reads = cluster.calls[f"status of {followed.application_id}"]
        async with asyncio.timeout(DEADLINE):
            while cluster.calls[f"status of {followed.application_id}"] < reads + 10:
                assert (told := await followed.next(DEADLINE)) is not None
                assert [peer_of_error(each) for each in told.outages] == [Peer.CLUSTER]
                assert poller.contact.said(Peer.STORE) == ""
        assert "nobody answers" in poller.contact.said(Peer.CLUSTER)
        cluster.fault = None
        await seen(followed, lambda observation: observation.outage is None and observation.whole)


async def test_a_store_that_answers_one_job_is_there_for_all(cluster: ScriptedCluster) -> None:
    patient, eager = job(cluster, 1, interval=3600.0), job(cluster, 2)
    async with poller_of(cluster) as poller:
        cluster.store_fault = StorageUnreachable("hdfs://x", "read", "no")
        poller.follow(patient)
        await seen(patient, lambda observation: observation.outage is not None)
        cluster.store_fault = None
        poller.follow(eager)
        await seen(patient, lambda observation: observation.outage is None)


async def test_a_fault_at_one_job_is_that_jobs_alone(cluster: ScriptedCluster) -> None:
    odd, other = job(cluster, 1), job(cluster, 2)
    cluster.odd = odd.application_id
    async with poller_of(cluster) as poller:
        poller.follow(odd)
        poller.follow(other)
        with pytest.raises(ZeroDivisionError):
            await seen(odd, lambda observation: observation.whole)
        cluster.running.remove(other.application_id)
        await seen(other, is_final)


async def test_a_cluster_that_hangs_holds_up_nobody_else(cluster: ScriptedCluster) -> None:
    other = ScriptedCluster()
    cluster.gate.clear()
    async with poller_of(cluster) as hanging, poller_of(other) as running:
        hanging.follow(job(cluster, 1))
        followed = job(other, 1)
        running.follow(followed)
        await seen(followed, lambda observation: observation.application is not None)
        cluster.gate.set()


async def test_a_fault_of_the_poller_reaches_whoever_waits(cluster: ScriptedCluster) -> None:
    cluster.fault = ZeroDivisionError("a fault")
    followed = job(cluster, 1)
    async with poller_of(cluster) as poller:
        poller.follow(followed)
        with pytest.raises(ZeroDivisionError, match="a fault"):
            await followed.next(DEADLINE)
        assert poller.has_failed


async def test_no_news_within_the_time_is_none(cluster: ScriptedCluster) -> None:
    assert await FollowedJob(Identity("x", "0"), "application_1_0001", 1.0).next(0.01) is None


async def test_jobs_of_one_connection_share_a_poller_that_ends_with_the_last(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "TonyHook", lambda *_: cluster)
    first, second = job(cluster, 1), job(cluster, 2)
    async with following("tony_default", None, first) as one:
        async with following("tony_default", None, second) as two, following("tony_default", "bob", second) as bobs:
            assert one is two
            assert bobs is not one
            await seen(second, lambda observation: observation.application is not None)
        await seen(first, lambda observation: observation.application is not None)
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*poller_module._closing)
    assert cluster.closed == 2
    async with following("tony_default", None, first) as again:
        assert again is not one


async def test_being_cancelled_while_it_waits_leaves_nothing_running(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "TonyHook", lambda *_: cluster)

    async def wait() -> None:
        followed = job(cluster, 1)
        async with following("tony_default", None, followed):
            while True:
                await followed.next(None)

    waiting = asyncio.get_running_loop().create_task(wait())
    async with asyncio.timeout(DEADLINE):
        await asyncio.to_thread(cluster.asked.wait)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.gather(*poller_module._closing)
    assert cluster.closed == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("tony-poller")]


async def test_output_shares_the_turns_of_steps_and_metrics(cluster: ScriptedCluster) -> None:
    """So many a second, whichever they are; and a master that hangs keeps nobody's steps from being read."""
    looks: Counter[str] = Counter()
    hangs = threading.Event()

    class Shown(OutputDisplay):
        def is_due(self, status: JobStatus | None) -> bool:
            return status is not None

        def look(self, job: TonyJob, status: JobStatus) -> None:
            looks[threading.current_thread().name[:11]] += 1
            hangs.wait(DEADLINE)

    pace = attrs.evolve(FAST, details_per_second=50.0)
    jobs = [job(cluster, number) for number in range(5)]
    for each in jobs:
        each.output = Shown(OutputSelection(["worker:0"]))
    began = asyncio.get_running_loop().time()
    async with poller_of(cluster, pace) as poller:
        for each in jobs:
            poller.follow(each)
        while not looks:
            await seen(jobs[0], lambda observation: observation.status is not None)
        asked = cluster.calls[f"status of {jobs[0].application_id}"]
        while cluster.calls[f"status of {jobs[0].application_id}"] < asked + 3:
            await seen(jobs[0], lambda observation: observation.status is not None)
        assert sum(looks.values()) == 1
        hangs.set()
        while sum(looks.values()) < 10:
            await seen(jobs[0], lambda observation: observation.status is not None)
        seconds = asyncio.get_running_loop().time() - began
        statuses = sum(count for name, count in cluster.calls.items() if name.startswith("status of"))
    assert statuses + sum(looks.values()) <= 50.0 * seconds + 2
    assert set(looks) == {"tony-poller"}
