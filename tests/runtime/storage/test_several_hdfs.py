"""Several HDFS behind one storage, each a scripted stand-in; tests/jobs/test_other_tokens.py has real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

from tests.runtime.storage.servers import Reply, Request, scripted
from tony_provider.runtime.storage import Storage, StorageInvalidPath, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.base import Readers, Right, SharedFiles
from tony_provider.runtime.storage.webhdfs.key_server import key_server_addresses

FILE = {"length": 1, "modificationTime": 1, "type": "FILE", "owner": "alice", "permission": "600"}
JSON = {"GETFILESTATUS": {"FileStatus": FILE}, "MKDIRS": {"boolean": True}, "DELETE": {"boolean": True}}
BOB = Readers(("bob",))


@attrs.define
class Several:
    storage: Storage
    own: list[Request]
    other: list[Request]

    def asked(self) -> tuple[list[str], list[str]]:
        """The operations that each HDFS has got since the last call."""
        operations = [each.op for each in self.own], [each.op for each in self.other]
        self.own.clear()
        self.other.clear()
        return operations


@contextmanager
def hdfs(asked: list[Request]) -> Iterator[str]:
    """The address of a NameNode that is its own DataNode, and to which everything succeeds."""

    def answer(request: Request) -> Reply:
        asked.append(request)
        if request.op == "CREATE":
            if "datanode" in request.params:
                return Reply(201)
            return Reply(307, location=f"{address}{request.path}&datanode=true")
        return Reply(200, json.dumps(JSON[request.op]).encode() if request.op in JSON else b"")

    with scripted(answer) as address:
        yield address


@pytest.fixture
def several() -> Iterator[Several]:
    own: list[Request] = []
    other: list[Request] = []
    with hdfs(own) as here, hdfs(other) as there:
        archive = WebHdfsStorage(WebHdfsConfig([there]), delegation_token="of-archive")
        shared = SharedFiles(BOB, frozenset({"/data/status.json"}), frozenset())
        config = WebHdfsConfig([here])
        with WebHdfsStorage(config, delegation_token="own", shared=shared, others={"archive": archive}) as storage:
            yield Several(storage, own, other)


@pytest.mark.parametrize(
    ("uri", "of_other"),
    [
        ("hdfs:///data", False),
        ("hdfs://prod/data", False),
        ("hdfs://archive/data", True),
        ("hdfs://Archive/data", True),
    ],
)
def test_each_uri_goes_to_the_hdfs_that_it_names(several: Several, uri: str, of_other: bool) -> None:
    several.storage.status(uri)
    several.storage.write(f"{uri}/status.json", b"x", overwrite=True)
    several.storage.share(uri, BOB, Right.READ)
    several.storage.remove(uri)
    own, other = several.asked()
    written = ["GETFILESTATUS", "MKDIRS", "CREATE", "CREATE", "RENAME", "SETACL", "DELETE"]
    shared = [*written[:4], "SETACL", *written[4:]]  # the other HDFS has a file of this path, but not a shared one
    assert (own, other) == (([], written) if of_other else (shared, []))


def test_a_directory_of_one_is_not_known_to_the_other(several: Several) -> None:
    several.storage.make_directories("hdfs:///data")
    several.storage.write("hdfs://archive/data/a", b"x")
    assert several.asked() == (["MKDIRS"], ["MKDIRS", "CREATE", "CREATE", "RENAME"])


def test_nothing_is_renamed_from_one_to_another(several: Several) -> None:
    with pytest.raises(StorageInvalidPath, match="another HDFS"):
        several.storage.rename("hdfs://prod/a", "hdfs://archive/a")
    assert several.asked() == ([], [])


def test_newer_tokens_go_to_whom_they_are_of(several: Several) -> None:
    several.storage.take_token("first")
    several.storage.take_token("second", "archive")
    several.storage.take_token("third", "kms://http@keys:9600/kms")  # nothing that a storage shows
    several.storage.status("hdfs:///a")
    several.storage.status("hdfs://archive/a")
    assert [each.params["delegation"] for each in (*several.own, *several.other)] == ["first", "second"]


@pytest.mark.parametrize(
    ("uri", "addresses"),
    [
        ("kms://http@keys:9600/kms", ["http://keys:9600/kms"]),
        ("kms://https@a;b:16000/kms", ["https://a:16000/kms", "https://b:16000/kms"]),
        ("kms://http@keys/kms/", ["http://keys:9600/kms"]),
    ],
)
def test_where_a_key_server_is(uri: str, addresses: list[str]) -> None:
    assert key_server_addresses(uri) == addresses


@pytest.mark.parametrize(
    "uri", ["", "http://keys:9600/kms", "kms://keys:9600/kms", "kms://ftp@keys/kms", "kms://http@"]
)
def test_what_is_no_key_server(uri: str) -> None:
    with pytest.raises(ValueError, match="use kms://http@host:9600/kms"):
        key_server_addresses(uri)
