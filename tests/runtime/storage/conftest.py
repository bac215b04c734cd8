"""The kinds of store, each as an empty directory of its own."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.s3proxy import ObjectServer
from tony_provider.runtime.storage import Storage, WebHdfsConfig, open_storage
from tony_provider.runtime.storage.base import list_existing
from tony_provider.runtime.storage.object_store import ObjectStorage

HDFS = ("webhdfs", "httpfs")
OBJECT_STORES = ("memory", "s3")
KINDS = ("local", "memory", "webhdfs")
USER = "alice"  # an ordinary one: HDFS's superuser may do everything


@attrs.frozen
class Place:
    """A store and a directory in it."""

    kind: str
    storage: Storage
    root: str

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, data: bytes = b"") -> str:
        self.storage.write(self.uri(name), data)
        return self.uri(name)

    def names(self, name: str = "") -> list[str]:
        """The names in a directory. On an object store, there is no directory without files."""
        return [status.name for status in list_existing(self.storage, self.uri(name))]


@pytest.fixture
def webhdfs_config(hadoop: HadoopCluster) -> WebHdfsConfig:
    return WebHdfsConfig(list(hadoop.webhdfs), user=USER)


@pytest.fixture
def httpfs_config(hadoop: HadoopCluster) -> WebHdfsConfig:
    return WebHdfsConfig([hadoop.httpfs], user=USER)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from new_place(request, tmp_path)


def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place of the kind that is the parameter of a fixture."""
    unique = uuid.uuid4().hex
    if request.param == "local":
        yield from _place("local", f"file://{tmp_path}/{unique}")
    elif request.param == "memory":
        store = importlib.import_module("obstore.store").MemoryStore()
        yield Place("memory", ObjectStorage("s3://memory", store), f"s3://memory/{unique}")
    elif request.param == "s3":
        server: ObjectServer = request.getfixturevalue("object_server")
        root = f"s3a://{server.add_bucket()}/root"
        yield Place("s3", ObjectStorage.open(root, server.variables), root)
    else:
        name = "webhdfs_config" if request.param == "webhdfs" else "httpfs_config"
        yield from _place(request.param, f"hdfs:///tmp/{unique}", request.getfixturevalue(name))


@pytest.fixture
def hdfs(webhdfs_config: WebHdfsConfig) -> Iterator[Place]:
    yield from _place("webhdfs", f"hdfs:///tmp/{uuid.uuid4().hex}", webhdfs_config)


def _place(kind: str, root: str, webhdfs: WebHdfsConfig | None = None) -> Iterator[Place]:
    with open_storage(root, webhdfs=webhdfs) as storage:
        storage.make_directories(root)
        yield Place(kind, storage, root)
        storage.remove(root, recursive=True)
