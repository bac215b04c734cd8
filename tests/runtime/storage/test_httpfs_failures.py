"""Lost answers, and writers side by side, at a scripted stand-in for HttpFS; tests/gateways has a real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import unquote

import attrs
import pytest

from tests.runtime.storage.servers import Reply, Request, scripted
from tony_provider.runtime.storage import StorageExists, StorageUnreachable, WebHdfsConfig, WebHdfsStorage

ROOT = "/webhdfs/v1"


@attrs.define
class HttpFs:
    """Holds names and, for each file, the number of the write that made it."""

    files: dict[str, int] = attrs.field(factory=dict)
    writes: int = 0
    on_rename: list[Callable[[str, str], bool]] = attrs.field(factory=list)
    """For each of the next renames: what happens before it; whether its answer is lost."""
    is_down: bool = False
    address: str = ""

    def answer(self, request: Request) -> Reply | None:
        path = unquote(request.path.partition("?")[0].partition(ROOT)[2])
        if self.is_down:
            return None
        if request.op == "CREATE":
            if request.params.get("data") != "true":
                return Reply(307, location=f"{self.address}{request.path}&data=true")
            self.writes += 1
            self.files[path] = self.writes
            return Reply(201)
        if request.op == "RENAME":
            target = request.params["destination"]
            lost = self.on_rename.pop(0)(path, target) if self.on_rename else False
            done = path in self.files and target not in self.files
            if done:
                self.files[target] = self.files.pop(path)
            return None if lost else truth(done)
        if request.op == "GETFILESTATUS":
            if path not in self.files:
                return missing(path)
            about = {"length": 1, "modificationTime": 1, "type": "FILE", "owner": "alice", "permission": "600"}
            return Reply(200, json.dumps({"FileStatus": about}).encode())
        if request.op == "DELETE":
            return truth(self.files.pop(path, None) is not None)
        return truth(True)  # MKDIRS


def truth(value: bool) -> Reply:
    return Reply(200, json.dumps({"boolean": value}).encode())


def missing(path: str) -> Reply:
    body = {"RemoteException": {"exception": "FileNotFoundException", "message": f"File does not exist: {path}"}}
    return Reply(404, json.dumps(body).encode())


@pytest.fixture
def server() -> Iterator[HttpFs]:
    held = HttpFs()
    with scripted(held.answer) as held.address:
        yield held


@pytest.fixture
def storage(server: HttpFs) -> Iterator[WebHdfsStorage]:
    storage = WebHdfsStorage(WebHdfsConfig([server.address], user="alice", timeout=2))
    yield storage
    storage.close()


def write(storage: WebHdfsStorage, *, overwrite: bool = False) -> None:
    storage.write("hdfs:///d/file", b"x", overwrite=overwrite)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_rename_whose_answer_was_lost_has_succeeded(
    server: HttpFs, storage: WebHdfsStorage, *, is_known: bool
) -> None:
    if is_known:
        storage.write("hdfs:///d/other", b"x")
    server.on_rename = [lambda *_: True]
    write(storage)
    assert server.files["/d/file"] == server.writes
    with pytest.raises(StorageExists):
        write(storage)


def test_the_former_file_comes_back_if_it_cannot_be_replaced(server: HttpFs, storage: WebHdfsStorage) -> None:
    write(storage)

    def lose_source(source: str, _target: str) -> bool:
        del server.files[source]
        return False

    server.on_rename = [lambda *_: False, lose_source]  # the former file aside, the new one in its place
    with pytest.raises(Exception, match="does not exist"):
        write(storage, overwrite=True)
    assert server.files == {"/d/file": 1}


def test_two_writers_replace_a_file_one_after_the_other(server: HttpFs, storage: WebHdfsStorage) -> None:
    write(storage)

    def other_was_quicker(_source: str, target: str) -> bool:
        server.files[target] = 99
        return False

    server.on_rename = [lambda *_: False, other_was_quicker]
    write(storage, overwrite=True)
    assert server.files["/d/file"] == server.writes
    assert list(server.files) == ["/d/file"]


def test_a_server_that_goes_away_in_between_leaves_both_files(server: HttpFs, storage: WebHdfsStorage) -> None:
    write(storage)

    def go_away(*_: str) -> bool:
        server.is_down = True
        return True

    server.on_rename = [lambda *_: False, go_away]
    with pytest.raises(StorageUnreachable):
        write(storage, overwrite=True)
    assert 1 in server.files.values()
