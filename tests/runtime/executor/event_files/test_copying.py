"""Event files on their way to the store, and from there to TensorBoard."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from tony_provider.runtime.executor.task_outputs import EventFileDownload, EventFileUpload, PeriodicTransfer
from tony_provider.runtime.storage import LocalStorage, Source, StorageInvalidPath, StorageUnreachable

EVENTS = "train/events.out.tfevents.1.host"


@attrs.define(eq=False)
class Counting(LocalStorage):
    """What was written, read and from where on."""

    written: list[str] = attrs.field(factory=list)
    read: list[tuple[str, int]] = attrs.field(factory=list)
    fails: dict[str, Exception] = attrs.field(factory=dict)

    def write(self, uri: str, source: Source, **more: Any) -> int:
        name = uri.rpartition("/")[2]
        if name in self.fails:
            raise self.fails[name]
        self.written.append(name)
        return super().write(uri, source, **more)

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> Any:
        self.read.append((uri.rpartition("/")[2], offset))
        return super().open_read(uri, offset=offset, length=length)


@attrs.define(eq=False)
class Way:
    """From a task's directory over the store to TensorBoard's."""

    root: Path
    storage: Counting = attrs.field(factory=Counting)
    keeper: EventFileUpload = attrs.field(init=False)
    gatherer: EventFileDownload = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.task.mkdir()
        self.shown.mkdir()
        store = f"file://{self.root}/store"
        self.keeper = EventFileUpload(self.storage, self.task, f"{store}/worker-0", size_limit=1000)
        self.gatherer = EventFileDownload(self.storage, store, self.shown, size_limit=1000)

    @property
    def task(self) -> Path:
        return self.root / "task"

    @property
    def kept(self) -> Path:
        return self.root / "store" / "worker-0"

    @property
    def shown(self) -> Path:
        return self.root / "shown"

    def put(self, name: str, data: bytes) -> Path:
        path = self.task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


@pytest.fixture
def way(tmp_path: Path) -> Way:
    return Way(tmp_path)


def files(directory: Path) -> dict[str, bytes]:
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def test_what_grows_is_kept_and_shown(way: Way) -> None:
    path = way.put(EVENTS, b"one")
    way.keeper.round()
    way.gatherer.round()
    assert files(way.kept) == {EVENTS: b"one"}
    with path.open("ab") as events:
        events.write(b", two")
    opened = (way.shown / "worker-0" / EVENTS).open("rb")  # as TensorBoard has it
    assert opened.read() == b"one"
    way.keeper.round()
    way.gatherer.round()
    assert opened.read() == b", two"
    assert way.storage.read == [(Path(EVENTS).name, 0), (Path(EVENTS).name, 3)]


def test_what_did_not_change_is_not_copied_again(way: Way) -> None:
    way.put(EVENTS, b"one")
    for _ in range(3):
        way.keeper.round()
        way.gatherer.round()
    assert len(way.storage.written) == len(way.storage.read) == 1


def test_nothing_is_removed_when_a_container_begins_anew(way: Way) -> None:
    way.put(EVENTS, b"one")
    way.keeper.round()
    (way.task / EVENTS).unlink()
    way.put(f"{EVENTS}.2", b"two")
    way.keeper.round()
    assert files(way.kept) == {EVENTS: b"one", f"{EVENTS}.2": b"two"}


def test_other_files_are_replaced(way: Way) -> None:
    way.put("projector_config.pbtxt", b"first and longer")
    way.keeper.round()
    way.gatherer.round()
    way.put("projector_config.pbtxt", b"second")
    way.keeper.round()
    way.gatherer.round()
    assert files(way.shown) == {"worker-0/projector_config.pbtxt": b"second"}


def test_no_more_than_a_limit(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    way.put(EVENTS, b"x" * 900)
    way.put("large", b"x" * 200)
    os.utime(way.task / "large", (1, 1))
    os.utime(way.task / EVENTS, (0, 0))  # the older goes first
    way.keeper.round()
    way.keeper.round()
    assert list(files(way.kept)) == [EVENTS]
    assert caplog.text.count("'large' in TONY_TENSORBOARD_DIR is not stored") == 1
    (way.kept / "large").write_bytes(b"x" * 200)
    way.gatherer.round()
    assert len(files(way.shown)) == 1


def test_only_regular_files_are_looked_at(way: Way, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "passwords").write_text("secret")
    (way.task / "link").symlink_to(tmp_path / "passwords")
    (way.task / "folder").symlink_to(tmp_path)
    os.mkfifo(way.task / "pipe")
    way.put(EVENTS, b"one")
    way.keeper.round()
    assert list(files(way.kept)) == [EVENTS]
    assert "'link' in TONY_TENSORBOARD_DIR is not stored: it is a link that leads out of the directory" in caplog.text


def test_a_file_that_the_store_refuses_does_not_hold_up_the_others(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    way.put("a:b", b"one")
    way.put(os.fsdecode(b"\xff"), b"half a letter")
    way.put(EVENTS, b"one")
    way.storage.fails["a:b"] = StorageInvalidPath("a:b", "write", "it has a colon")
    with pytest.raises(StorageInvalidPath):
        way.keeper.round()
    assert list(files(way.kept)) == [EVENTS]
    assert "in TONY_TENSORBOARD_DIR is not stored: its name is not valid UTF-8" in caplog.text


async def test_a_store_out_of_reach_is_a_delay_and_said_once(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    way.put(EVENTS, b"one")
    way.storage.fails[Path(EVENTS).name] = StorageUnreachable("file:///", "write", "it is gone")
    await way.keeper._round()
    await way.keeper._round()
    assert caplog.text.count("it is gone") == 1
    way.storage.fails.clear()
    await way.keeper.finish(30)
    assert list(files(way.kept)) == [EVENTS]


class Hanging(PeriodicTransfer):
    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def round(self) -> None:
        self._loop.call_soon_threadsafe(self.began.set)
        self.cancelled.wait(60)


async def test_the_last_round_keeps_nobody_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    hanging = Hanging()
    hanging.start()
    await asyncio.wait_for(hanging.began.wait(), 30)
    await asyncio.wait_for(hanging.finish(0.1), 30)
    assert "no time was left" in caplog.text
