"""Nodes of one cluster with different Pythons, whatever the application master and the executors get."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.jobs.pythons import EVERY, OLDEST, OWN, find_python, programs_without_python
from tests.permissions import open_to_all
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState

pytestmark = pytest.mark.long

MASTERS = 4  # one after the other, each on any of the nodes


@cache
def pythons() -> dict[str, Path]:
    """Those of this machine, by version."""
    found = {each: Path(sys.executable).resolve() if each == OWN else find_python(each) for each in EVERY}
    return {version: python for version, python in found.items() if python is not None}


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    """A cluster of one node for each Python, which is the only one on its PATH."""
    found = pythons()
    if OLDEST not in found:
        pytest.skip(f"there is no Python {OLDEST} on this machine")
    path = programs_without_python(tmp_path_factory.mktemp("node") / "bin")
    cluster = start_hadoop(Settings(node_path=str(path), nodemanagers=len(found), expiry_seconds=10))
    hosts = [manager.host for manager in cluster.state.addresses.nodemanagers]
    assert len(set(hosts)) == len(found)
    lines = [
        f'{host}) exec {shlex.quote(str(python))} "$@" ;;' for host, python in zip(hosts, found.values(), strict=True)
    ]
    script = path / "python3"
    script.write_text("\n".join(["#!/bin/sh", 'case "$NM_HOST" in', *lines, "esac", "exit 127", ""]))
    script.chmod(0o755)
    yield cluster
    cluster.stop()


@pytest.fixture
def yarn(cluster: HadoopCluster, tmp_path: Path) -> Iterator[YarnPlace]:
    archive = tmp_path / "tony-runtime.zip"
    command = ["tony", "runtime", "build", "--python", ",".join(pythons()), "--output", str(archive)]
    done = subprocess.run([sys.executable, "-m", "airflow", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    place = YarnPlace(cluster=cluster)
    place.extra["runtime_archive"] = str(archive)
    yield place
    place.close()


def test_masters_and_executors_of_all_pythons_work_together(yarn: YarnPlace, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    go_on = tmp_path / "go-on"
    wait = f"python3 -V; while ! test -e {go_on}; do sleep 0.2; done"
    # More than half of a node: each worker gets one of its own, and a master beside it.
    workers = {"instances": len(pythons()), "memory": "2200MiB", "command": wait}
    job = yarn.submit({"am": {"attempts": MASTERS, "memory": "512MiB"}, "tasks": {"worker": workers}})
    job.until(JobState.RUNNING)
    for index in range(len(pythons())):
        until(partial(_said_version, job, f"worker:{index}"), job.describe)

    for attempt in range(2, MASTERS + 1):
        os.kill(job.master().pid, signal.SIGKILL)
        until(partial(_works, job, attempt), job.describe)
    go_on.touch()

    status = job.succeeded()
    said = "".join(job.log(task.name) for task in status.tasks)
    assert all(f"Python {version}." in said for version in pythons()), said
    assert [task.attempt for task in status.tasks] == [1] * len(pythons()), "no container was lost"
    assert_nothing_left(yarn, job)


def _said_version(job: Job, task: str) -> bool:
    return "Python 3." in job.output(task)


def _works(job: Job, attempt: int) -> bool:
    """Return whether the executors are back at the master of this attempt."""
    status = job.status()
    return (status.am_attempt, status.state) == (attempt, JobState.RUNNING)
