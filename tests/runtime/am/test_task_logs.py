"""Logs that executors send: the master stores several in one file, from which readers take each by its name."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_LZMA, ZipFile

import attrs
import pytest

from tests.runtime.am.descriptions import DESCRIPTION
from tony_provider.runtime.am import records
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.records import TaskLogs
from tony_provider.runtime.protocol import http_messages
from tony_provider.runtime.protocol.http_messages import pack_logs, stored_log, stored_logs
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.protocol.tony_pb2 import LastWords
from tony_provider.runtime.storage import LocalStorage, StorageError, StorageNotFound


class Failing(LocalStorage):
    fails = False

    def write(self, *arguments: Any, **named: Any) -> int:
        if self.fails:
            raise StorageError("file:///x", "write", "the disk is full")
        return super().write(*arguments, **named)


@pytest.fixture
def storage() -> Failing:
    return Failing()


@pytest.fixture
def logs(tmp_path: Path, storage: Failing) -> Callable[[], TaskLogs]:
    description = attrs.evolve(DESCRIPTION, application_dir=str(tmp_path))
    return lambda: TaskLogs(Ownership(storage, description, 1, b"key"))


def identity(task: str, attempt: int = 1) -> TaskIdentity:
    return TaskIdentity("application_1_0001", f"container_1_0001_01_00000{attempt}", task, attempt)


async def test_many_logs_are_one_file(tmp_path: Path, storage: Failing, logs: Callable[[], TaskLogs]) -> None:
    written = logs()
    for number in range(100):
        written.keep(identity(f"worker:{number}"), LastWords(output=f"I am {number}\n".encode() * 100))
    assert written.unstored("worker-7.log").read(5, 3) == b"7\nI"  # type: ignore[union-attr]
    assert await written.finish()
    assert written.unstored("worker-7.log") is None
    (bundle,) = (tmp_path / "logs").iterdir()
    assert bundle.stat().st_size < 100 * 700
    assert bundle.stat().st_mode & 0o777 == 0o600
    found = stored_logs(storage, str(tmp_path / "logs"))
    assert len(found) == 100
    assert (found["worker-99.log"].size, found["worker-99.log"].read(0, 8)) == (800, b"I am 99\n")
    assert stored_log(storage, str(tmp_path / "logs"), "worker-3.log").after(693, 100).data == b"I am 3\n"
    with pytest.raises(StorageNotFound):
        stored_log(storage, str(tmp_path / "logs"), "worker-100.log")


async def test_the_output_of_a_killed_container_never_hides_all_of_it(
    tmp_path: Path, storage: Failing, logs: Callable[[], TaskLogs]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text("all of it\n")
    written = logs()
    written.keep(identity("worker:0"), LastWords(output=b"of it\n", tail="of it\n"))
    written.keep(identity("worker:0", 2), LastWords(output=b"the end\n", tail="the end\n"))
    assert await written.finish()
    found = stored_logs(storage, str(tmp_path / "logs"))
    assert {name: log.read(0, log.size) for name, log in found.items()} == {
        "worker-0.log": b"all of it\n",
        "worker-0.attempt-2.log": b"the end\n",
        **{name: log.read(0, log.size) for name, log in found.items() if name.endswith(".zip")},
    }


async def test_logs_wait_for_the_store_within_limits(
    storage: Failing,
    logs: Callable[[], TaskLogs],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(records, "_MOST_UNSTORED", 20)
    storage.fails = True
    written = logs()
    for number in range(3):
        written.keep(identity(f"worker:{number}"), LastWords(output=b"x" * 9))
    assert not await written.finish()
    assert "worker-0.log is lost: the store does not accept logs" in caplog.text
    storage.fails = False
    assert not await written.finish()  # a log is lost
    assert set(stored_logs(storage, str(tmp_path / "logs"))) == {"worker-1.log", "worker-2.log"}


async def test_lost_logs_need_no_memory(
    storage: Failing, logs: Callable[[], TaskLogs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_MOST_UNSTORED", 20)
    storage.fails = True
    written = logs()
    for number in range(9):
        written.keep(identity(f"worker:{number}"), LastWords(output=b"x" * 9))
        assert not await written.write()
    storage.fails = False
    assert await written.write()
    assert set(stored_logs(storage, str(tmp_path / "logs"))) == {"worker-7.log", "worker-8.log"}


def test_more_logs_than_any_job_has_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_messages, "_MOST_LOGS", 3)
    for bundle in range(5):
        names = [f"worker-{2 * bundle + number}.log" for number in range(2)]
        (tmp_path / f"tasks-1-{bundle}.zip").write_bytes(pack_logs(dict.fromkeys(names, b"x")))
    assert len(stored_logs(LocalStorage(), str(tmp_path))) == 4
    assert "tasks-1-4.zip is not read, because there are more than 3 logs" in caplog.text


def test_a_log_that_lies_outside_its_bundle_is_damaged(tmp_path: Path) -> None:
    extra = struct.pack("<HHQ", 1, 8, (1 << 64) - 1)  # the position in a zip archive of more than 4 GiB
    data = bytearray(pack_logs({"worker-0.log": b"x"}))
    entry, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    data[entry + 30 : entry + 32] = struct.pack("<H", len(extra))
    data[entry + 42 : entry + 46] = b"\xff" * 4
    size = end - entry + len(extra)
    (tmp_path / "tasks-1-1.zip").write_bytes(
        bytes(data[:end]) + extra + bytes(data[end : end + 12]) + struct.pack("<I", size) + bytes(data[end + 16 :])
    )
    log = stored_logs(LocalStorage(), str(tmp_path))["worker-0.log"]
    with pytest.raises(StorageError, match=r"worker-0\.log is damaged"):
        log.read(0, 1)


@pytest.mark.parametrize("change", [lambda data: b"no zip", lambda data: data[:-9], lambda data: data[:40] + b"!" * 9])
def test_a_file_that_is_no_bundle_hides_no_other_log(
    change: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tasks-1-1.zip").write_bytes(change(pack_logs({"worker-0.log": b"a\n" * 100})))
    hostile = {"worker-1.log": b"b\n", "a/b.log": b"", "c.log": b"\0" * (1 << 20)}
    (tmp_path / "tasks-1-2.zip").write_bytes(pack_logs(hostile))
    with ZipFile(tmp_path / "tasks-1-3.zip", "w") as bundle:  # zipfile expands these entries without a limit
        bundle.writestr("worker-2.log", b"c\n", ZIP_BZIP2)
        bundle.writestr("worker-3.log", b"c\n", ZIP_LZMA)
    assert set(stored_logs(LocalStorage(), str(tmp_path))) == {"worker-1.log"}
    assert "tasks-1-1.zip, which contains logs" in caplog.text


async def test_bundles_are_small_and_only_one_is_in_memory(
    tmp_path: Path, storage: Failing, logs: Callable[[], TaskLogs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BUNDLED_LOGS", 1000)
    written = logs()
    for number in range(7):
        written.keep(identity(f"worker:{number}"), LastWords(output=bytes([number]) * 400))
    written.keep(identity("worker:7"), LastWords(output=bytes([7]) * 3000))
    assert await written.finish()
    assert len(list((tmp_path / "logs").iterdir())) == 5
    found = stored_logs(storage, str(tmp_path / "logs"))
    assert [found[f"worker-{number}.log"].read(0, 1) for number in range(8)] == [bytes([each]) for each in range(8)]
    assert len([each for each in gc.get_objects() if isinstance(each, ZipFile)]) <= 4


async def test_a_small_bundle_grows(tmp_path: Path, storage: Failing, logs: Callable[[], TaskLogs]) -> None:
    """Tasks may end one by one, over hours."""
    written = logs()
    for number in range(20):
        written.keep(identity(f"worker:{number}"), LastWords(output=bytes([number]) * 200_000))
        found = stored_logs(storage, str(tmp_path / "logs"))
        assert await written.write()
        if number:
            assert found["worker-0.log"].read(5, 1) == b"\0"  # also if the bundle was listed before it grew
    assert len(list((tmp_path / "logs").iterdir())) == 4
    found = stored_logs(storage, str(tmp_path / "logs"))
    assert all(found[f"worker-{number}.log"].read(7, 1) == bytes([number]) for number in range(20))


def test_a_bundle_with_very_many_logs_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_messages, "MOST_BUNDLED", 5)
    (tmp_path / "tasks-1-1.zip").write_bytes(pack_logs({f"worker-{number}.log": b"" for number in range(11)}))
    assert stored_logs(LocalStorage(), str(tmp_path)) == {}
    assert "it has more than 10 logs" in caplog.text


def test_a_damaged_log_in_a_bundle_is_named(tmp_path: Path) -> None:
    data = pack_logs({"worker-0.log": bytes(range(256)) * 4})
    at = data.index(b"worker-0.log") + len("worker-0.log") + 5
    (tmp_path / "tasks-1-1.zip").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    with pytest.raises(StorageError, match=r"worker-0\.log is damaged"):
        stored_logs(LocalStorage(), str(tmp_path))["worker-0.log"].read(0, 2000)
