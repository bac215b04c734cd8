"""What dies in a cluster across the end of a job's first token, whoever brings it newer ones; and a week in short.

tests/jobs/test_token_renewal.py has a master and a container.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.jobs.renewals import (
    as_user,
    assert_well,
    kill_executor,
    kill_master,
    short_tokens,
    spec,
    tokens_seen,
    until_ms,
    until_newer,
    until_over,
)
from tests.jobs.waiters import by_command, by_trigger, by_worker
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.protocol.status import JobState

pytestmark = pytest.mark.long

Waiter = Callable[[YarnPlace, dict[str, Any], Path], AbstractContextManager[Job]]
LIFE_MS, INTERVAL_MS = 40_000, 30_000
WARM_UP = 3  # newer tokens, until everything was done once
GROWTH_KIB = 6 << 10  # of three processes, for what allocators do
SPARE_DESCRIPTORS = 6  # of connections that just then are open


@pytest.fixture(scope="module")
def pairs(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """A Kerberos cluster of short-lived tokens, with two NameNodes."""
    properties = short_tokens(LIFE_MS, INTERVAL_MS)
    settings = Settings(secure=True, rpc_protection="privacy", namenodes=2, properties=properties)
    with as_user(YarnPlace(cluster=start_hadoop(settings))) as place:
        yield place


def restart_resourcemanager(cluster: HadoopCluster) -> Callable[[], None]:
    cluster.kill("resourcemanager-1")
    return lambda: cluster.restart("resourcemanager-1")


def fail_over_namenode(cluster: HadoopCluster) -> Callable[[], None]:
    """To whichever is the standby; the other one comes back as that."""
    active = cluster.webhdfs.index(cluster.services.active_namenode() or "") + 1
    cluster.kill(f"namenode-{active}")

    def mend() -> None:
        cluster.activate_namenode(3 - active)
        cluster.restart(f"namenode-{active}")

    return mend


@pytest.mark.parametrize("waiter", [by_trigger, by_worker, by_command])
@pytest.mark.parametrize("fault", [restart_resourcemanager, fail_over_namenode])
def test_a_fault_across_the_end_of_the_first_token(
    pairs: YarnPlace, tmp_path: Path, fault: Callable[[HadoopCluster], Callable[[], None]], waiter: Waiter
) -> None:
    """Newer tokens come before and after; a master and a container that die then find what they need."""
    with waiter(pairs, spec(tmp_path), tmp_path) as job:
        job.until(JobState.RUNNING)
        first = until_ms(job)
        until_newer(job)
        mend = fault(pairs.cluster)
        until_over(job, first)
        mend()
        until_newer(job)
        kill_master(job)
        kill_executor(job, "worker:1")
        until_newer(job)
        (tmp_path / "end").touch()
        job.end()
    assert_well(job, pairs)
    assert tokens_seen(job) == 2


def use_of(pids: list[int]) -> tuple[int, int]:
    """Resident memory in KiB and open descriptors, of all of them together."""
    resident = [int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) for pid in pids]
    return sum(resident), sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def test_a_week_in_short_costs_no_more_than_a_day(pairs: YarnPlace, tmp_path: Path) -> None:
    """Ten lifetimes of tokens, with two newer ones in each."""
    with by_trigger(pairs, spec(tmp_path), tmp_path) as job:
        job.until(JobState.RUNNING)
        for _ in range(WARM_UP):
            until_newer(job)
        pids = [job.master().pid, *(executor.pid for executor in job.executors())]
        began, (memory, descriptors) = epoch_ms(), use_of(pids)
        while epoch_ms() < began + 10 * INTERVAL_MS:
            until_newer(job)
        later_memory, later_descriptors = use_of(pids)
        status = job.status()
        (tmp_path / "end").touch()
        job.end()
    assert_well(job, pairs)
    renewals = [each for each in job.events() if each["event"] == "store_token"]
    print(
        f"{len(renewals)} newer tokens; resident {memory} -> {later_memory} KiB, descriptors {descriptors} -> "
        f"{later_descriptors}, status {len(dump_json(status))} bytes, events {len(json.dumps(job.events()))} bytes"
    )
    assert len(renewals) >= 10
    assert later_memory < memory + GROWTH_KIB
    assert later_descriptors <= descriptors + SPARE_DESCRIPTORS
    assert status.troubles == []
    assert len(json.dumps(renewals)) < 250 * len(renewals)
