"""What a write asks a real HDFS for, seen by who stands between."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator

import attrs
import pytest

from tests.runtime.storage.conftest import Place
from tests.runtime.storage.servers import Reply, Request, forward, remote_exception, scripted
from tony_provider.runtime.storage import (
    FileStatus,
    StorageError,
    StorageExists,
    StorageIsADirectory,
    StorageUnreachable,
    WebHdfsConfig,
    open_storage,
    read_bytes,
)
from tony_provider.runtime.storage.base import CHUNK, PRIVATE_DIRECTORY, write_atomically
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage


@attrs.frozen
class Watched:
    """A store, and what it has asked its NameNode for since the last look."""

    place: Place
    asked: Counter[str]

    def look(self) -> Counter[str]:
        seen = Counter(self.asked)
        self.asked.clear()
        return seen


@pytest.fixture
def watched(hdfs: Place, webhdfs_config: WebHdfsConfig) -> Iterator[Watched]:
    asked: Counter[str] = Counter()

    def answer(request: Request) -> Reply:
        asked[request.op] += 1
        return forward(webhdfs_config.addresses[0], request)

    with scripted(answer) as address:
        config = attrs.evolve(webhdfs_config, addresses=[address])
        with open_storage(hdfs.root, webhdfs=config) as storage:
            yield Watched(Place("webhdfs", storage, hdfs.root), asked)


def test_a_directory_is_asked_for_with_its_first_file_only(watched: Watched) -> None:
    place = watched.place
    place.write("d/a", b"1")
    assert watched.look() == {"MKDIRS": 1, "CREATE": 1, "RENAME": 1}
    place.write("d/b", b"2")
    assert watched.look() == {"CREATE": 1, "RENAME": 1}
    place.storage.make_directories(place.uri("e"))
    watched.look()
    place.write("e/a", b"3")
    assert watched.look() == {"CREATE": 1, "RENAME": 1}


@pytest.mark.parametrize("above", ["d", "d/e"])
@pytest.mark.parametrize("by", ["itself", "others", "a rename"])
def test_a_directory_that_is_gone_is_made_again(hdfs: Place, watched: Watched, by: str, above: str) -> None:
    place = watched.place
    place.write("d/e/a", b"old")
    if by == "a rename":
        place.storage.rename(place.uri(above), place.uri("elsewhere"))
    else:
        (place if by == "itself" else hdfs).storage.remove(place.uri(above), recursive=True)
    place.write("d/e/b", b"new")
    assert place.names("d/e") == ["b"]
    assert [place.storage.status(place.uri(name)).permission for name in ("d", "d/e")] == [PRIVATE_DIRECTORY] * 2


def test_a_source_that_can_be_read_once_is_the_caller_s_to_send_again(hdfs: Place, watched: Watched) -> None:
    place = watched.place
    place.write("d/a", b"old")
    hdfs.storage.remove(place.uri("d"), recursive=True)
    with pytest.raises(StorageUnreachable):
        place.storage.write(place.uri("d/b"), iter([b"new"]))
    place.storage.write(place.uri("d/b"), iter([b"new"]))
    assert read_bytes(place.storage, place.uri("d/b")) == b"new"
    assert place.names("d") == ["b"]


@pytest.mark.parametrize("size", [1, CHUNK + 1])
def test_many_bytes_are_not_sent_for_nothing(watched: Watched, size: int) -> None:
    place = watched.place
    place.write("d/a", b"old")
    watched.look()
    with pytest.raises(StorageExists):
        place.storage.write(place.uri("d/a"), io.BytesIO(bytes(size)))
    assert watched.look()["CREATE"] == (1 if size <= CHUNK else 0)
    with pytest.raises(StorageIsADirectory):
        place.storage.write(place.uri("d"), io.BytesIO(bytes(size)), overwrite=True)
    assert place.names() == ["d"]
    assert read_bytes(place.storage, place.uri("d/a")) == b"old"
    assert place.names("d") == ["a"]


def test_a_record_needs_no_datanode_for_its_bytes(watched: Watched) -> None:
    place = watched.place
    place.storage.write_record(place.uri("d/a"), b"1")
    assert watched.look() == {"MKDIRS": 1, "CREATE": 1, "GETFILESTATUS": 1, "SETXATTR": 1, "RENAME": 1}
    place.storage.write_record(place.uri("d/b"), b"2")
    assert watched.look() == {"CREATE": 1, "SETXATTR": 1, "RENAME": 1}
    assert read_bytes(place.storage, place.uri("d/a")) == b"1"
    assert watched.look() == {"GETFILESTATUS": 1, "GETXATTRS": 1}


def test_a_record_that_is_replaced_while_it_is_read(hdfs: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two requests of a reader, an ordinary file takes the record's place."""
    uri = hdfs.uri("result.json")
    hdfs.storage.write_record(uri, b"content")
    assert isinstance(hdfs.storage, WebHdfsStorage)
    attribute = hdfs.storage._attribute

    def replaced(uri: str) -> bytes:
        write_atomically(hdfs.storage, uri, b"content")
        return attribute(uri)

    monkeypatch.setattr(hdfs.storage, "_attribute", replaced)
    assert read_bytes(hdfs.storage, uri) == b"content"


def test_without_attributes_a_record_is_an_ordinary_file(hdfs: Place, webhdfs_config: WebHdfsConfig) -> None:
    """The answer is the one of a NameNode with ``dfs.namenode.xattrs.enabled`` false; the rest is a real HDFS."""
    refused: list[str] = []

    def answer(request: Request) -> Reply:
        if request.op in ("SETXATTR", "GETXATTRS"):
            refused.append(request.op)
            name = "java.lang.UnsupportedOperationException"
            said = {"exception": "UnsupportedOperationException", "javaClassName": name, "message": "XAttr is disabled"}
            return Reply(400, json.dumps({"RemoteException": said}).encode())
        return forward(webhdfs_config.addresses[0], request)

    with (
        scripted(answer) as address,
        open_storage(hdfs.root, webhdfs=attrs.evolve(webhdfs_config, addresses=[address])) as storage,
    ):
        for name in ("a", "b"):
            storage.write_record(hdfs.uri(name), b"content")
            assert read_bytes(storage, hdfs.uri(name)) == b"content"
        storage.write(hdfs.uri("empty"), b"")
        assert read_bytes(storage, hdfs.uri("empty")) == b""
    assert refused == ["SETXATTR", "GETXATTRS"]
    assert hdfs.names() == ["a", "b", "empty"]


def test_an_ordinary_file_that_a_record_replaces_while_it_is_read(hdfs: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = hdfs.uri("status.json")
    hdfs.storage.write(uri, b"content")
    status = hdfs.storage.status

    def replaced(uri: str) -> FileStatus:
        found = status(uri)
        hdfs.storage.write_record(uri, b"the next content", overwrite=True)
        return found

    monkeypatch.setattr(hdfs.storage, "status", replaced)
    assert read_bytes(hdfs.storage, uri, offset=4) == b"next content"


def test_an_error_of_the_server_is_no_empty_record(hdfs: Place, webhdfs_config: WebHdfsConfig) -> None:
    hdfs.storage.write_record(hdfs.uri("result.json"), b"content")

    def answer(request: Request) -> Reply:
        if request.op == "GETXATTRS":
            return remote_exception("router.NoNamenodesAvailableException", "No namenodes available under nameservice")
        return forward(webhdfs_config.addresses[0], request)

    with (
        scripted(answer) as address,
        open_storage(hdfs.root, webhdfs=attrs.evolve(webhdfs_config, addresses=[address])) as storage,
        pytest.raises(StorageError, match="No namenodes available"),
    ):
        read_bytes(storage, hdfs.uri("result.json"))


def test_in_an_encryption_zone_a_record_is_an_ordinary_file(hdfs: Place, webhdfs_config: WebHdfsConfig) -> None:
    """The zone is pretended: HDFS tells of it in the status of each file, and does not encrypt attributes."""
    asked: Counter[str] = Counter()

    def answer(request: Request) -> Reply:
        asked[request.op] += 1
        reply = forward(webhdfs_config.addresses[0], request)
        if request.op == "GETFILESTATUS" and reply.code == 200 and "/zone/" in request.path:
            status = json.loads(reply.body)
            status["FileStatus"]["encBit"] = True
            return Reply(200, json.dumps(status).encode())
        return reply

    with (
        scripted(answer) as address,
        open_storage(hdfs.root, webhdfs=attrs.evolve(webhdfs_config, addresses=[address])) as storage,
    ):
        for name in ("outside", "zone/a", "zone/b"):
            storage.write_record(hdfs.uri(name), b"content")
    assert asked["SETXATTR"] == 1
    sizes = [hdfs.storage.status(hdfs.uri(name)).size for name in ("outside", "zone/a", "zone/b")]
    assert sizes == [0, len(b"content"), len(b"content")]
    assert hdfs.names() == ["outside", "zone"]


def test_many_files_are_joined_in_short_requests(hdfs: Place, webhdfs_config: WebHdfsConfig) -> None:
    lengths: list[int] = []

    def answer(request: Request) -> Reply:
        if request.op == "CONCAT":
            lengths.append(len(request.path))
        return forward(webhdfs_config.addresses[0], request)

    names = [f"part-{number:0100}" for number in range(50)]
    for name in ("first", *names):
        hdfs.storage.write(hdfs.uri(name), name.encode())
    with (
        scripted(answer) as address,
        open_storage(hdfs.root, webhdfs=attrs.evolve(webhdfs_config, addresses=[address])) as storage,
    ):
        storage.join(hdfs.uri("first"), [hdfs.uri(name) for name in names])
    assert read_bytes(hdfs.storage, hdfs.uri("first")) == "".join(["first", *names]).encode()
    assert len(lengths) == 3
    assert max(lengths) < 16 << 10


def test_after_a_join_that_hdfs_refuses_there_is_no_other(hdfs: Place) -> None:
    assert hdfs.storage.can_join(hdfs.root)
    hdfs.storage.write(hdfs.uri("a"), b"1")
    hdfs.storage.make_directories(hdfs.uri("b"))  # as little as a file of a snapshot can it be joined
    with pytest.raises(StorageError):
        hdfs.storage.join(hdfs.uri("a"), [hdfs.uri("b")])
    assert not hdfs.storage.can_join(hdfs.root)
