"""WebHDFS when servers are away, silent, standby or broken. Behind most of them stands a real NameNode."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.permissions import set_permission
from tests.runtime.storage.conftest import USER, Place
from tests.runtime.storage.servers import STANDBY, Reply, Request, forward, refusing, remote_exception, scripted, silent
from tony_provider.runtime.storage import (
    StorageError,
    StorageInvalidPath,
    StorageNoSpace,
    StorageNotFound,
    StoragePermissionDenied,
    StorageTimeout,
    StorageUnreachable,
    WebHdfsConfig,
    WebHdfsStorage,
    open_storage,
    read_bytes,
)
from tony_provider.runtime.storage.base import QuotaRoom

MIB = 1 << 20


def patient(config: WebHdfsConfig, addresses: list[str], timeout: float = 60) -> WebHdfsStorage:
    """Fails over quickly and gives up late."""
    return WebHdfsStorage(attrs.evolve(config, addresses=addresses, response_timeout=0.5, timeout=timeout))


def hasty(*addresses: str) -> WebHdfsStorage:
    return WebHdfsStorage(
        WebHdfsConfig(
            list(addresses),
            user="alice",
            connect_timeout=0.3,
            response_timeout=0.3,
            stream_timeout=0.3,
            silence_timeout=0.3,
            timeout=1,
        )
    )


@pytest.fixture
def uri(hdfs: Place) -> str:
    return hdfs.write("a", b"hello")


def test_a_refusing_namenode_is_passed_over(webhdfs_config: WebHdfsConfig, uri: str) -> None:
    storage = patient(webhdfs_config, [refusing(), *webhdfs_config.addresses])
    assert read_bytes(storage, uri) == b"hello"


def test_a_silent_namenode_is_passed_over_and_then_left_alone(webhdfs_config: WebHdfsConfig, uri: str) -> None:
    asked = []

    def never(request: Request) -> None:
        asked.append(request.op)
        released.wait(60)

    released = threading.Event()
    with scripted(never) as address:
        storage = patient(webhdfs_config, [address, *webhdfs_config.addresses])
        assert storage.status(uri).size == 5
        storage.write(f"{uri}2", b"x")
        released.set()
    assert asked == ["GETFILESTATUS"]  # the other one answered, and is asked first from then on


def test_a_standby_is_passed_over_with_scripted_words(webhdfs_config: WebHdfsConfig, uri: str) -> None:
    with scripted(lambda _: STANDBY) as address:
        storage = patient(webhdfs_config, [address, *webhdfs_config.addresses])
        assert read_bytes(storage, uri) == b"hello"


def test_a_namenode_that_becomes_active_later_is_waited_for(webhdfs_config: WebHdfsConfig, uri: str) -> None:
    answers = [STANDBY, None, Reply(503), STANDBY]

    def later(request: Request) -> Reply | None:
        return answers.pop() if answers else forward(webhdfs_config.addresses[0], request)

    with scripted(later) as address:
        assert patient(webhdfs_config, [address]).status(uri).size == 5


@pytest.mark.parametrize("count", [1, 2])
def test_silence_of_all_ends_at_the_deadline(count: int) -> None:
    with silent() as first, silent() as second:
        addresses = [first, second][:count]
        with pytest.raises(StorageTimeout) as error:
            hasty(*addresses).status("hdfs:///a")
    assert all(address in str(error.value) for address in addresses)


def test_refusal_by_all_names_each_and_why() -> None:
    first, second = refusing(), refusing()
    with pytest.raises(StorageUnreachable, match="Connection refused") as error:
        hasty(first, second).write("hdfs:///a", b"x")
    assert first in str(error.value)
    assert second in str(error.value)


def test_close_ends_a_wait() -> None:
    storage = WebHdfsStorage(WebHdfsConfig([refusing()], timeout=600))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(storage.status, "hdfs:///a")
        storage.close()
        with pytest.raises(StorageUnreachable, match="closed"):
            waiting.result(60)


def test_a_server_that_is_no_namenode() -> None:
    with (
        scripted(lambda _: Reply(404, b"<html>Not here</html>")) as html,
        pytest.raises(StorageError, match="check that its address is a NameNode"),
    ):
        hasty(html).status("hdfs:///a")
    with scripted(lambda _: Reply(200, b"<html>Hi</html>")) as html, pytest.raises(StorageError, match="is a NameNode"):
        hasty(html).status("hdfs:///a")


def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch, webhdfs_config: WebHdfsConfig, uri: str) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, refusing())
    assert read_bytes(WebHdfsStorage(webhdfs_config), uri) == b"hello"


@pytest.fixture
def loses_answers(webhdfs_config: WebHdfsConfig) -> Iterator[tuple[WebHdfsStorage, set[str]]]:
    """A storage whose NameNode carries out the operations in the set once without an answer, and the set."""
    to_lose: set[str] = set()

    def answer(request: Request) -> Reply | None:
        reply = forward(webhdfs_config.addresses[0], request)
        if request.op in to_lose:
            to_lose.remove(request.op)
            return None
        return reply

    with scripted(answer) as address:
        yield patient(webhdfs_config, [address]), to_lose


def test_a_rename_whose_answer_is_lost_has_happened(
    loses_answers: tuple[WebHdfsStorage, set[str]], hdfs: Place, uri: str
) -> None:
    storage, to_lose = loses_answers
    to_lose.add("RENAME")
    storage.rename(uri, hdfs.uri("b"))
    assert not to_lose
    assert hdfs.names() == ["b"]
    to_lose.add("RENAME")
    with pytest.raises(StorageNotFound):
        storage.rename(uri, hdfs.uri("c"))
    to_lose.update({"CREATE", "RENAME", "MKDIRS"})
    assert storage.write(hdfs.uri("d/e"), b"once") == 4
    to_lose.add("DELETE")
    assert storage.remove(hdfs.uri("d"), recursive=True)
    assert hdfs.names() == ["b"]


def test_unreachable_datanodes_are_explained(webhdfs_config: WebHdfsConfig, uri: str, hdfs: Place) -> None:
    nowhere = refusing()
    excluded = []

    def answer(request: Request) -> Reply:
        reply = forward(webhdfs_config.addresses[0], request)
        excluded.append(request.params.get("excludedatanodes"))
        location = reply.location and urlsplit(reply.location)._replace(netloc=urlsplit(nowhere).netloc).geturl()
        return attrs.evolve(reply, location=location)

    with scripted(answer) as address:
        storage = WebHdfsStorage(attrs.evolve(webhdfs_config, addresses=[address], timeout=3))
        for transfer in (lambda: read_bytes(storage, uri), lambda: storage.write(hdfs.uri("b"), b"x")):
            with pytest.raises(StorageUnreachable, match="must resolve their names and reach") as error:
                transfer()
            assert urlsplit(nowhere).netloc in str(error.value)
    assert "127.0.0.1" in excluded  # another DataNode was asked for
    assert hdfs.names() == ["a"]


def test_names_of_datanodes_that_this_machine_does_not_know_are_not_waited_for(
    webhdfs_config: WebHdfsConfig, uri: str, hdfs: Place
) -> None:
    """Not until the deadline of requests, which would be an hour here."""

    def answer(request: Request) -> Reply:
        reply = forward(webhdfs_config.addresses[0], request)
        location = reply.location and urlsplit(reply.location)._replace(netloc="node1.invalid:9864").geturl()
        return attrs.evolve(reply, location=location)

    with scripted(answer) as address:
        storage = WebHdfsStorage(attrs.evolve(webhdfs_config, addresses=[address], timeout=3600))
        for transfer in (lambda: read_bytes(storage, uri), lambda: storage.write(hdfs.uri("b"), b"x")):
            with pytest.raises(StorageUnreachable, match=r"node1\.invalid:9864: .*must resolve their names"):
                transfer()


def test_datanodes_that_come_back_are_waited_for(webhdfs_config: WebHdfsConfig, hdfs: Place) -> None:
    """What a NameNode says that has just started, and what a DataNode says that has lost its NameNode."""
    none = remote_exception("java.io.IOException", "Failed to find datanode, suggest to check cluster health.")
    away = remote_exception("java.net.ConnectException", "Call From a/1 to b:8020 failed on connection exception: no")
    replies = [away, none, none]

    def answer(request: Request) -> Reply | None:
        if "datanode" in request.params or (request.op == "CREATE" and len(replies) > 1):
            return replies.pop()
        if request.op == "CREATE" and replies:
            return Reply(307, location=f"{addresses[0]}/x?op=CREATE&datanode=1")
        return forward(webhdfs_config.addresses[0], request)

    addresses: list[str] = []
    with scripted(answer) as address:
        addresses.append(address)
        assert patient(webhdfs_config, [address]).write(hdfs.uri("a"), b"hello") == 5
    assert not replies
    assert hdfs.names() == ["a"]


def test_a_silent_datanode_ends_at_the_deadline() -> None:
    status = b'{"FileStatus":{"length":3,"modificationTime":1,"type":"FILE","owner":"alice","permission":"600"}}'
    with silent() as datanode:

        def answer(request: Request) -> Reply:
            return Reply(200, status) if request.op == "GETFILESTATUS" else Reply(307, location=f"{datanode}/x?op=OPEN")

        with scripted(answer) as namenode, pytest.raises(StorageTimeout, match=urlsplit(datanode).netloc):
            hasty(namenode).open_read("hdfs:///a")


def test_a_read_goes_on_where_a_scripted_datanode_broke_off() -> None:
    data = bytes(range(256)) * 4096
    status = b'{"FileStatus":{"length":%d,"modificationTime":1,"type":"FILE","owner":"a","permission":"600"}}' % len(
        data
    )
    asked = []

    def answer(request: Request) -> Reply:
        if request.op == "GETFILESTATUS":
            return Reply(200, status)
        if "from" not in request.params:
            start = int(request.params["offset"])
            asked.append(start)
            return Reply(307, location=f"{addresses[0]}/d?op=OPEN&from={start}&length={request.params['length']}")
        start = int(request.params["from"])
        wanted = data[start : start + int(request.params["length"])]
        return Reply(200, wanted[: 1 + len(wanted) // 2], length=len(wanted))  # half of it, then the end

    addresses: list[str] = []
    with scripted(answer) as address:
        addresses.append(address)
        storage = WebHdfsStorage(WebHdfsConfig([address]))
        assert read_bytes(storage, "hdfs:///a", offset=7, length=100_000) == data[7:100_007]
    assert len(asked) > 5
    assert asked == sorted(asked)


def test_a_source_that_can_be_read_once_is_not_sent_twice(webhdfs_config: WebHdfsConfig, hdfs: Place) -> None:
    creates = []

    def breaking(request: Request) -> Reply | None:
        if "datanode" in request.params:
            return None
        if request.op == "CREATE":
            creates.append(request.params)
            return Reply(307, location=f"{addresses[0]}/x?op=CREATE&datanode=1")
        return forward(webhdfs_config.addresses[0], request)

    addresses: list[str] = []
    with scripted(breaking) as address:
        addresses.append(address)
        storage = patient(webhdfs_config, [address], timeout=5)
        with pytest.raises(StorageUnreachable):
            storage.write(hdfs.uri("once"), iter([b"x"]))
        assert len(creates) == 1
        with pytest.raises(StorageUnreachable):
            storage.write(hdfs.uri("again"), b"x")
        assert len(creates) > 2
    assert all(params["overwrite"] == "false" and params["permission"] == "600" for params in creates)
    assert hdfs.names() == []


def test_a_cluster_that_becomes_ready_is_waited_for(webhdfs_config: WebHdfsConfig, hdfs: Place) -> None:
    said = remote_exception("hdfs.server.namenode.SafeModeException", "Name node is in safe mode.")
    not_ready = [said, said]

    def answer(request: Request) -> Reply | None:
        if "datanode" in request.params:
            return not_ready.pop()
        if request.op == "CREATE" and not_ready:
            return Reply(307, location=f"{addresses[0]}/x?op=CREATE&datanode=1")
        return forward(webhdfs_config.addresses[0], request)

    addresses: list[str] = []
    with scripted(answer) as address:
        addresses.append(address)
        assert patient(webhdfs_config, [address]).write(hdfs.uri("a"), b"hello") == 5
    assert hdfs.names() == ["a"]


def test_a_file_that_shrinks_while_it_is_sent(hdfs: Place) -> None:
    class Shrinking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(size)[:-1]

    with pytest.raises(StorageError, match="shorter"):
        hdfs.storage.write(hdfs.uri("a"), Shrinking(b"0123456789"))
    assert hdfs.names() == []


def test_the_room_that_quotas_leave(hdfs: Place, hadoop: HadoopCluster) -> None:
    assert hdfs.storage.quota_room(hdfs.root) is None
    replication = hadoop.services.hdfs_admin.get_json(f"{hadoop.webhdfs[0]}/webhdfs/v1/", op="GETSERVERDEFAULTS")[
        "FsServerDefaults"
    ]["replication"]
    hdfs.write("a", bytes(1000))
    hadoop.services.set_quota(hdfs.root, storagespacequota=MIB * replication)
    assert hdfs.storage.quota_room(hdfs.root) == QuotaRoom(MIB - 1000, None)
    hadoop.services.set_quota(hdfs.root, namespacequota=10)
    assert hdfs.storage.quota_room(hdfs.root) == QuotaRoom(MIB - 1000, 8), "the directory itself counts"
    hadoop.services.set_quota(hdfs.root, storagespacequota=1)
    assert hdfs.storage.quota_room(hdfs.root) == QuotaRoom(0, 8)
    assert hdfs.storage.quota_room(hdfs.uri("a")) is None
    with pytest.raises(StorageNotFound):
        hdfs.storage.quota_room(hdfs.uri("missing"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(400, b'{"RemoteException": {"exception": "IllegalArgumentException", "message": "op"}}'),
        Reply(403, b"<html>"),
        Reply(200, b'{"QuotaUsage": {"quota": "many"}}'),
        Reply(200, b'{"QuotaUsage": {"quota": -1, "spaceQuota": 9, "spaceConsumed": 1, "fileAndDirectoryCount": 1}}'),
    ],
)
def test_a_server_that_does_not_tell_its_quotas(reply: Reply) -> None:
    with scripted(lambda _: reply) as address:
        assert WebHdfsStorage(WebHdfsConfig([address])).quota_room("hdfs:///a") is None


def test_quotas(hdfs: Place, hadoop: HadoopCluster) -> None:
    hadoop.services.set_quota(hdfs.root, storagespacequota=MIB)
    with pytest.raises(StorageNoSpace, match="quota"):
        hdfs.storage.write(hdfs.uri("big"), bytes(4 * MIB))
    with pytest.raises(StorageNoSpace, match="quota"):
        hdfs.storage.write(hdfs.uri("big"), iter([bytes(MIB)] * 300))
    hadoop.services.set_quota(hdfs.root, namespacequota=2)
    hdfs.storage.make_directories(hdfs.uri("one"))
    with pytest.raises(StorageNoSpace, match="quota"):
        hdfs.storage.make_directories(hdfs.uri("two"))
    assert hdfs.names() == ["one"]


def test_other_users_files(hdfs: Place, hadoop: HadoopCluster, webhdfs_config: WebHdfsConfig, uri: str) -> None:
    bob = WebHdfsStorage(attrs.evolve(webhdfs_config, user="bob"))
    set_permission(hadoop, USER, hdfs.root, 0o711)
    for attempt in (
        lambda: read_bytes(bob, uri),
        lambda: bob.write(hdfs.uri("b"), b"x"),
        lambda: bob.remove(uri),
        lambda: bob.rename(uri, f"{uri}2"),
        lambda: bob.list(hdfs.root),
    ):
        with pytest.raises(StoragePermissionDenied):
            attempt()
    assert hdfs.names() == ["a"]


def test_acting_for_another_user(webhdfs_config: WebHdfsConfig, hdfs: Place, uri: str) -> None:
    service = WebHdfsStorage(attrs.evolve(webhdfs_config, user="airflow", proxy_user="alice"))
    service.write(hdfs.uri("b"), b"x")
    assert service.status(hdfs.uri("b")).owner == "alice"
    assert read_bytes(service, uri) == b"hello"
    impostor = WebHdfsStorage(attrs.evolve(webhdfs_config, user="bob", proxy_user="alice"))
    with pytest.raises(StoragePermissionDenied):
        impostor.status(uri)


@pytest.mark.parametrize("name", ["a:b", "x" * 300, "latin\udcfc"])
def test_names_that_hdfs_refuses(hdfs: Place, name: str) -> None:
    with pytest.raises(StorageInvalidPath):
        hdfs.storage.write(hdfs.uri(name), b"x")
    with pytest.raises(StorageInvalidPath):
        hdfs.storage.make_directories(hdfs.uri(name))
    assert hdfs.names() == []


def test_the_authority_is_kept_and_checked(hadoop: HadoopCluster, webhdfs_config: WebHdfsConfig, uri: str) -> None:
    authority = urlsplit(hadoop.fs_default).netloc
    config = attrs.evolve(webhdfs_config, authorities=[authority])
    full = hadoop.fs_default + urlsplit(uri).path
    with open_storage(full, webhdfs=config) as storage:
        assert storage.status(full).path == full
        assert storage.status(uri).path == uri
        with pytest.raises(StorageInvalidPath, match=authority):
            storage.status("hdfs://other/tmp")


def test_errors_never_show_the_token() -> None:
    seen = []

    def answer(request: Request) -> Reply:
        seen.append(parse_qs(urlsplit(request.path).query)["delegation"])
        return Reply(401, b"<html>no</html>")

    with scripted(answer) as address:
        storage = WebHdfsStorage(WebHdfsConfig([address], user="alice"), delegation_token="s3cr3t")
        with pytest.raises(StorageError, match="401") as error:
            storage.status("hdfs:///a")
    assert seen == [["s3cr3t"]]
    assert "s3cr3t" not in str(error.value) + repr(error.value.__cause__)
