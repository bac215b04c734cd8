"""WebHDFS while the daemons of a real HDFS die, fail over and come back under what is going on."""

from __future__ import annotations

import io
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.waiting import until
from tony_provider.runtime.storage import (
    Storage,
    StorageUnreachable,
    WebHdfsConfig,
    open_storage,
    read_bytes,
)
from tony_provider.runtime.storage.base import CHUNK

pytestmark = pytest.mark.long

USER = "alice"
DEADLINE = 120.0
SETTINGS = Settings(namenodes=2, datanodes=2, nodemanagers=0, properties={"hdfs-site": {"dfs.replication": "2"}})


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """A pair of NameNodes over two DataNodes, to break."""
    cluster = start_hadoop(SETTINGS)
    yield cluster
    cluster.stop()


@pytest.fixture
def storage(cluster: HadoopCluster) -> Iterator[Storage]:
    config = WebHdfsConfig(list(cluster.webhdfs), user=USER)
    with open_storage("hdfs:///", webhdfs=config) as storage:
        yield storage


@pytest.fixture
def root(storage: Storage, request: pytest.FixtureRequest) -> Iterator[str]:
    root = f"hdfs:///user/{USER}/{re.sub('[^a-z_]', '', request.node.name)[:80]}"
    storage.make_directories(root)
    yield root
    storage.remove(root, recursive=True)


def fail_over(cluster: HadoopCluster) -> None:
    """The active NameNode dies, the other one takes over, and the dead one comes back as the standby."""
    number = cluster.webhdfs.index(str(cluster.services.active_namenode())) + 1
    cluster.kill(f"namenode-{number}")
    cluster.activate_namenode(3 - number)
    cluster.restart(f"namenode-{number}")


def restart(cluster: HadoopCluster) -> None:
    """The active NameNode dies and comes back, and nobody takes over: for a while there is none."""
    number = cluster.webhdfs.index(str(cluster.services.active_namenode())) + 1
    cluster.kill(f"namenode-{number}")
    cluster.restart(f"namenode-{number}")
    cluster.activate_namenode(number)


class Busy:
    """Somebody who writes, reads, renames and lists without a pause, and minds everything that is not right."""

    def __init__(self, storage: Storage, root: str) -> None:
        self.storage, self.root = storage, root
        self.rounds = 0
        self.stopping = threading.Event()

    def work(self) -> None:
        self.storage.make_directories(self.root)
        for number in itertools.count():
            if self.stopping.is_set():
                return
            self.round(number)
            self.rounds = number + 1

    def round(self, number: int) -> None:
        draft, final = f"{self.root}/draft", f"{self.root}/{number:04d}"
        data = os.urandom(CHUNK // 4) + str(number).encode()
        assert self.storage.write(draft, data) == len(data)
        assert read_bytes(self.storage, draft) == data
        self.storage.rename(draft, final)
        assert [status.name for status in self.storage.list(self.root)] == [f"{n:04d}" for n in range(number + 1)]
        self.storage.write(f"{self.root}/0000", data, overwrite=True)
        assert read_bytes(self.storage, f"{self.root}/0000", offset=5, length=7) == data[5:12]


class Paused(io.BytesIO):
    """A source of bytes of which half is read, and the rest only when it may go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.half = len(data) // 2
        self.reached, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= self.half:
            self.reached.set()
            assert self.go_on.wait(DEADLINE)
        return super().read(size)


def write_half(
    pool: ThreadPoolExecutor, storage: Storage, uri: str, source: Paused, *, once: bool = False
) -> Future[int]:
    """A write that waits in the middle of its bytes. ``once``: they can be read but once."""
    future = pool.submit(storage.write, uri, iter(lambda: source.read(CHUNK), b"") if once else source)
    until(lambda: source.reached.is_set() or future.done(), "half of the bytes were read")
    return future


@pytest.mark.parametrize("change", [fail_over, restart])
def test_nothing_is_lost_or_done_twice_while_the_namenode_changes(
    cluster: HadoopCluster, storage: Storage, root: str, change: Callable[[HadoopCluster], None]
) -> None:
    busy = [Busy(storage, f"{root}/{name}") for name in "abc"]
    source = Paused(data := os.urandom(8 * CHUNK))

    def another_round(before: list[int]) -> bool:
        """Of everybody; or somebody has failed."""
        more = all(each.rounds > done for each, done in zip(busy, before, strict=True))
        return more or any(future.done() for future in working)

    with ThreadPoolExecutor(1 + len(busy)) as pool:
        working = [pool.submit(each.work) for each in busy]
        writing = write_half(pool, storage, f"{root}/half", source)
        until(lambda: another_round([0 for _ in busy]), "a round of everybody")
        change(cluster)
        source.go_on.set()
        rounds = [each.rounds for each in busy]
        until(lambda: another_round(rounds), "another round of everybody")
        for each in busy:
            each.stopping.set()
        for future in working:
            future.result(DEADLINE)
        assert writing.result(DEADLINE) == len(data)
    assert read_bytes(storage, f"{root}/half") == data
    assert [status.name for status in storage.list(root)] == ["a", "b", "c", "half"]


def test_a_write_whose_datanode_dies_is_repeated_as_a_whole(
    cluster: HadoopCluster, storage: Storage, root: str
) -> None:
    """Whole or not at all: where the source cannot be read again, the caller is told, and may write again."""
    data = os.urandom(8 * CHUNK)
    source, other = Paused(data), Paused(data)
    with ThreadPoolExecutor(2) as pool:
        writing = write_half(pool, storage, f"{root}/a", source)
        number = serving(cluster)
        cluster.kill(f"datanode-{number}")
        try:
            source.go_on.set()
            assert writing.result(DEADLINE) == len(data)
            assert read_bytes(storage, f"{root}/a") == data
        finally:
            cluster.restart(f"datanode-{number}")

        writing = write_half(pool, storage, f"{root}/b", other, once=True)
        number = serving(cluster)
        cluster.kill(f"datanode-{number}")
        try:
            other.go_on.set()
            with pytest.raises(StorageUnreachable, match="DataNode"):
                writing.result(DEADLINE)
            assert [status.name for status in storage.list(root)] == ["a"]
            storage.write(f"{root}/b", data)
            assert read_bytes(storage, f"{root}/b") == data
        finally:
            cluster.restart(f"datanode-{number}")


def test_a_read_whose_datanode_dies_goes_on_at_the_other(cluster: HadoopCluster, storage: Storage, root: str) -> None:
    data = os.urandom(64 * CHUNK)  # more than lies in buffers on the way
    storage.write(f"{root}/a", data)
    with storage.open_read(f"{root}/a") as file:
        first = file.read(CHUNK)
        number = serving(cluster)
        cluster.kill(f"datanode-{number}")
        try:
            assert first + file.read() == data
        finally:
            cluster.restart(f"datanode-{number}")


def serving(cluster: HadoopCluster) -> int:
    """The number of the one DataNode that this process has an open connection to."""
    addresses = [datanode.http for datanode in cluster.state.addresses.datanodes]
    [found] = {addresses.index(address) for address in _connected() if address in addresses}
    return found + 1


def _connected() -> Iterator[str]:
    """Where this process's TCP connections lead, as host:port; see proc_pid_net(5)."""
    own = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        remote, state, inode = fields[2], fields[3], fields[9]
        if state == "01" and f"socket:[{inode}]" in own:
            host, _, port = remote.partition(":")
            yield f"{'.'.join(map(str, reversed(bytes.fromhex(host))))}:{int(port, 16)}"
