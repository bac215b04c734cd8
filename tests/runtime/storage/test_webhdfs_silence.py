"""WebHDFS while a daemon of a real HDFS hangs, as a process does that was stopped by SIGSTOP."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.waiting import until
from tony_provider.runtime.storage import WebHdfsConfig, WebHdfsStorage, read_bytes
from tony_provider.runtime.storage.base import CHUNK, is_temporary

pytestmark = pytest.mark.long

USER = "alice"
FILES = 8  # the NameNode chooses a DataNode at random for each
# A DataNode itself waits 60 s for the next one in its pipeline, and a client once waited 120 s for a DataNode.
DEADLINE = 55.0


@pytest.fixture(scope="module", params=[1, 2])
def cluster(start_hadoop: StartHadoop, request: pytest.FixtureRequest) -> Iterator[HadoopCluster]:
    """Two DataNodes, with one or two replicas of each block."""
    properties = {"hdfs-site": {"dfs.replication": str(request.param)}}
    cluster = start_hadoop(Settings(datanodes=2, nodemanagers=0, properties=properties))
    yield cluster
    cluster.stop()


@pytest.fixture
def storage(cluster: HadoopCluster) -> Iterator[WebHdfsStorage]:
    with closing(WebHdfsStorage(WebHdfsConfig(list(cluster.webhdfs), user=USER))) as storage:
        yield storage


@pytest.fixture
def root(cluster: HadoopCluster, storage: WebHdfsStorage) -> Iterator[str]:
    root = f"hdfs:///user/{USER}/{uuid.uuid4().hex}"
    storage.make_directories(root)
    yield root
    cluster.kill("datanode-2", signal.SIGCONT)


def test_writes_go_to_the_datanode_that_answers(cluster: HadoopCluster, storage: WebHdfsStorage, root: str) -> None:
    data = {f"{root}/{number}": os.urandom(2 * CHUNK) for number in range(FILES)}
    cluster.kill("datanode-2", signal.SIGSTOP)
    for uri, content in data.items():
        with in_time():
            assert storage.write(uri, content) == 2 * CHUNK
    with in_time():
        assert {uri: read_bytes(storage, uri) for uri in data} == data
    cluster.kill("datanode-2", signal.SIGCONT)
    wanted = int(cluster.settings.properties["hdfs-site"]["dfs.replication"])
    until(lambda: all(replicas(cluster, uri) == wanted for uri in data), "all files have their replicas again")
    # The DataNode that works again may also write the files that it was sent.
    names = {status.name for status in storage.list(root) if not is_temporary(status.name)}
    assert names == {uri.rpartition("/")[2] for uri in data}


def test_reads_go_to_the_datanode_that_answers(cluster: HadoopCluster, storage: WebHdfsStorage, root: str) -> None:
    if cluster.settings.properties["hdfs-site"]["dfs.replication"] == "1":
        pytest.skip("the only replica may be on the DataNode that hangs")
    data = {f"{root}/{number}": os.urandom(CHUNK) for number in range(FILES)}
    for uri, content in data.items():
        storage.write(uri, content)
    until(lambda: all(replicas(cluster, uri) == 2 for uri in data), "all files have two replicas")
    cluster.kill("datanode-2", signal.SIGSTOP)
    for uri, content in data.items():
        with in_time():
            assert read_bytes(storage, uri) == content


def test_a_wait_for_a_namenode_that_hangs_is_logged(
    cluster: HadoopCluster, storage: WebHdfsStorage, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(1) as pool:
        cluster.kill("namenode", signal.SIGSTOP)
        try:
            waiting = pool.submit(storage.list, root)
            until(lambda: "waiting for the storage to list" in caplog.text or waiting.done(), "the wait is logged")
            assert not waiting.done(), "it is logged only after the end"
        finally:
            cluster.kill("namenode", signal.SIGCONT)
        assert waiting.result(DEADLINE) == []
    assert caplog.text.count("waiting for the storage") == 1


@contextmanager
def in_time() -> Iterator[None]:
    """Fail if the body takes longer than ``DEADLINE``."""

    def too_long(*_: object) -> None:
        raise AssertionError(f"it took more than {DEADLINE:g} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def replicas(cluster: HadoopCluster, uri: str) -> int:
    """The smallest number of live replicas of a block of the file, as the NameNode reports it."""
    path = uri.removeprefix("hdfs://")
    found = cluster.services.hdfs_admin.get_json(f"{cluster.webhdfs[0]}/webhdfs/v1{path}", op="GET_BLOCK_LOCATIONS")
    return min(len(block["locations"]) for block in found["LocatedBlocks"]["locatedBlocks"])
