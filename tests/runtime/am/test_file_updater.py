"""Files that are kept up to date: the newest wins, and a store that fails is tried again."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tony_provider.runtime.am import store_writer as publisher_module
from tony_provider.runtime.am.store_writer import FileUpdater
from tony_provider.runtime.application import settle
from tony_provider.runtime.storage import LocalStorage, StorageNotFound, uris
from tony_provider.runtime.storage.base import Source

DEADLINE = 30


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.01)


async def stopped(publisher: FileUpdater, running: Awaitable[None]) -> None:
    publisher.stop()
    await asyncio.wait_for(running, DEADLINE)


class SlowStorage(LocalStorage):
    """Holds writes up until it is let go; counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.writes = 0

    def write(self, uri: str, source: Source, **more: Any) -> int:
        self.writes += 1
        assert self.go.wait(DEADLINE)
        return super().write(uri, source, **more)


class RecordStorage(LocalStorage):
    """Keeps records as HDFS does: in empty files, which other programs cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, bytes] = {}

    def write_record(self, uri: str, data: bytes, *, overwrite: bool = False) -> bool:
        super().write(uri, b"", overwrite=overwrite)
        self.records[uris.parse(uri).path] = data
        return True

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        if self.status(uri).size:
            return super().open_read(uri, offset=offset, length=length)
        return io.BytesIO(self.records.get(uris.parse(uri).path, b"")[offset:][:length])


async def test_last_content_is_a_record_until_it_settles(tmp_path: Path) -> None:
    target, storage = tmp_path / "status.json", RecordStorage()
    (tmp_path / "empty").touch()
    publisher = FileUpdater(storage, target.as_uri(), lambda: lambda: b"content")
    assert await publisher.write()
    assert target.read_bytes() == b"content"
    assert await publisher.finish()
    assert target.read_bytes() == b""
    storage.write_record((tmp_path / "logs" / "tasks-1-1.zip").as_uri(), b"logs")
    settle(storage, tmp_path.as_uri())
    assert target.read_bytes() == b"content"
    assert (tmp_path / "logs" / "tasks-1-1.zip").read_bytes() == b"logs"
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_record_settles_although_a_reader_removes_temporary_files(tmp_path: Path) -> None:
    class Tidied(RecordStorage):
        removals = 1

        def write(self, uri: str, source: Source, **more: Any) -> int:
            if self.records and self.removals:
                self.removals -= 1
                raise StorageNotFound(uri, "rename", "its temporary file is gone")
            return super().write(uri, source, **more)

    storage, target = Tidied(), tmp_path / "result.json"
    storage.write_record(target.as_uri(), b"content")
    settle(storage, tmp_path.as_uri())
    assert target.read_bytes() == b"content"
    assert storage.removals == 0


def test_a_record_that_is_removed_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    class Removing(RecordStorage):
        def open_read(self, uri: str, **how: Any) -> BinaryIO:
            Path(uris.parse(uri).path).unlink(missing_ok=True)
            return super().open_read(uri, **how)

    storage, target = Removing(), tmp_path / "status.json"
    storage.write_record(target.as_uri(), b"content")
    settle(storage, tmp_path.as_uri())
    assert not target.exists()


async def test_newest_content_is_written(tmp_path: Path) -> None:
    content = [b"1"]
    target = tmp_path / "status.json"
    publisher = FileUpdater(LocalStorage(), target.as_uri(), lambda: partial(bytes, content[0]))
    running = asyncio.ensure_future(publisher.run())
    publisher.changed()
    await eventually(lambda: target.exists() and target.read_bytes() == b"1")
    content[0] = b"2"
    publisher.changed(soon=False)
    content[0] = b"3"
    publisher.changed()
    await eventually(lambda: target.read_bytes() == b"3")
    await stopped(publisher, running)


async def test_many_changes_during_a_slow_write_become_one(tmp_path: Path) -> None:
    content = [b"0"]
    storage = SlowStorage()
    target = tmp_path / "status.json"
    publisher = FileUpdater(storage, target.as_uri(), lambda: partial(bytes, content[0]))
    running = asyncio.ensure_future(publisher.run())
    publisher.changed()
    await eventually(lambda: storage.writes == 1)
    for number in range(100):
        content[0] = str(number).encode()
        publisher.changed()
    storage.go.set()
    await eventually(lambda: target.exists() and target.read_bytes() == b"99")
    assert storage.writes == 2
    await stopped(publisher, running)


async def test_stop_waits_for_the_write_under_way(tmp_path: Path) -> None:
    """So that an old status can never overwrite the last one."""
    storage = SlowStorage()
    target = tmp_path / "status.json"
    publisher = FileUpdater(storage, target.as_uri(), lambda: lambda: b"content")
    running = asyncio.ensure_future(publisher.run())
    publisher.changed()
    await eventually(lambda: storage.writes == 1)
    publisher.stop()
    assert not running.done()
    storage.go.set()
    await asyncio.wait_for(running, DEADLINE)
    assert target.read_bytes() == b"content"


async def test_failing_store_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("a file is in the way")
    target = folder / "status.json"
    publisher = FileUpdater(LocalStorage(), target.as_uri(), lambda: lambda: b"content")
    assert not await publisher.write()
    folder.unlink()
    assert await publisher.write()
    assert target.read_bytes() == b"content"


async def test_it_says_since_when_and_why_a_file_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.write_text("a file is in the way")
    events: list[tuple[str, str]] = []
    publisher = FileUpdater(
        LocalStorage(),
        (folder / "status.json").as_uri(),
        lambda: lambda: b"",
        note=lambda note: events.append((note.event, note.message)),
    )
    assert publisher.trouble == ""
    for _ in range(2):
        await publisher.write()
        assert publisher.trouble.startswith("status.json has not been written since 20")
        assert str(folder) in publisher.trouble
    folder.unlink()
    await publisher.write()
    assert publisher.trouble == ""
    (failed, why), (again, how) = events
    assert (failed, again) == ("not_written", "written_again")
    assert why.startswith("status.json: cannot make directory")
    assert how.startswith("status.json was written after ")


async def test_so_does_a_write_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "SLOW_ANSWER", 0.05)
    storage = SlowStorage()
    events: list[tuple[str, str]] = []
    publisher = FileUpdater(
        storage,
        (tmp_path / "status.json").as_uri(),
        lambda: lambda: b"",
        note=lambda note: events.append((note.event, note.message)),
    )
    writing = asyncio.ensure_future(publisher.write())
    await eventually(lambda: publisher.trouble.endswith("the store does not answer"))
    assert events == []
    storage.go.set()
    assert await writing
    assert publisher.trouble == ""
    assert [event for event, _ in events] == ["written_again"]


async def test_what_does_not_change_is_written_all_the_same(tmp_path: Path) -> None:
    """So that whoever reads it can tell that its writer lives."""
    storage = SlowStorage()
    storage.go.set()
    publisher = FileUpdater(storage, (tmp_path / "status.json").as_uri(), lambda: lambda: b"content", interval=0.1)
    running = asyncio.ensure_future(publisher.run())
    publisher.changed()
    await eventually(lambda: storage.writes >= 3)
    await stopped(publisher, running)


async def test_bytes_are_made_off_the_loop(tmp_path: Path) -> None:
    """Those of a job with thousands of tasks take long; what they are made of is taken on the loop."""
    threads: list[int] = []

    def content() -> Callable[[], bytes]:
        threads.append(threading.get_ident())
        return make

    def make() -> bytes:
        threads.append(threading.get_ident())
        return b"content"

    assert await FileUpdater(LocalStorage(), (tmp_path / "status.json").as_uri(), content).write()
    taken, made = threads
    assert taken == threading.get_ident() != made
