"""What only local disk has: links, umasks, crashes, names that are not UTF-8."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tony_provider.runtime.storage import (
    LocalStorage,
    StorageError,
    StorageExists,
    StorageInvalidPath,
    StorageNotFound,
    StoragePermissionDenied,
    is_temporary,
    local_path,
    read_bytes,
    walk,
    write_atomically,
)
from tony_provider.runtime.storage.stores import leftovers

storage = LocalStorage()


@pytest.fixture(params=[0o000, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_permissions_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o700)
    storage.write(f"{root}/a/b", b"", permission=0o640)
    storage.make_directories(f"{root}/c/d", permission=0o750)
    assert {status.name: status.permission for status in walk(storage, str(root))} == {
        "a": 0o700,
        "b": 0o640,
        "c": 0o750,
        "d": 0o750,
    }


def test_bare_paths_and_uris_are_the_same(tmp_path: Path) -> None:
    storage.write(f"{tmp_path}/a", b"x")
    status = storage.status(f"{tmp_path}/a")
    assert status.path == f"file://{tmp_path}/a"
    assert storage.status(status.path) == storage.status(f"file://localhost{tmp_path}//a/") == status
    assert local_path(status.path) == tmp_path / "a"
    for other in ("file://elsewhere/a", "hdfs:///a", "a/b", ""):
        with pytest.raises(StorageInvalidPath):
            storage.status(other)


def test_links(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"old")
    (tmp_path / "directory").symlink_to("d")
    (tmp_path / "file").symlink_to("d/f")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "circle").symlink_to("circle")
    names = {status.name: status.is_directory for status in storage.list(str(tmp_path))}
    assert names == {"circle": False, "d": True, "directory": True, "file": False, "nowhere": False}
    assert {status.name for status in storage.list(str(tmp_path)) if not status.is_link} == {"d"}
    assert [status.name for status in walk(storage, str(tmp_path), links=False)] == ["d", "f"]
    assert read_bytes(storage, f"{tmp_path}/directory/f") == b"old"
    with pytest.raises(StorageNotFound):
        storage.status(f"{tmp_path}/nowhere")
    with pytest.raises(StorageExists):
        storage.write(f"{tmp_path}/nowhere", b"x")
    write_atomically(storage, f"{tmp_path}/file", b"new")
    assert (tmp_path / "d/f").read_bytes() == b"old"
    assert storage.remove(f"{tmp_path}/directory", recursive=True)
    assert storage.remove(f"{tmp_path}/nowhere")
    assert (tmp_path / "d/f").exists()


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    storage.write(f"{tmp_path}/{name}", b"x")
    assert [status.name for status in storage.list(str(tmp_path))] == [name]


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    assert storage.write(f"{tmp_path}/{'x' * 255}", b"x") == 1
    with pytest.raises(StorageInvalidPath):
        storage.write(f"{tmp_path}/{'x' * 256}", b"x")
    assert len(storage.list(str(tmp_path))) == 1


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root may do everything, so not as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_directory_of_someone_else(ordinary_user: None) -> None:
    for attempt in (
        lambda: storage.write("/no-such-file", b"x"),
        lambda: storage.make_directories("/no/such/directory"),
        lambda: storage.rename("/usr", "/etc/usr"),
        lambda: storage.remove("/etc/passwd"),
    ):
        with pytest.raises(StoragePermissionDenied):
            attempt()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    """A job on this machine writes in its directory what it likes: a pipe in place of its status held a thread."""
    place = tmp_path / "status.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
    else:
        place.symlink_to("/dev/zero")
    with pytest.raises(StorageError):
        storage.open_read(str(place))


def test_directories_that_are_nested_more_deeply_than_python_calls(tmp_path: Path) -> None:
    """Seen: one such directory of a job kept ``airflow tony gc`` from collecting anything."""
    place, depth = os.open(tmp_path, os.O_RDONLY), 1200
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    try:
        assert sum(1 for _ in walk(storage, str(tmp_path))) == depth
        assert list(leftovers(storage, str(tmp_path))) == []
        with contextlib.suppress(StorageInvalidPath):  # newer Pythons can
            storage.remove(f"{tmp_path}/d", recursive=True)
    finally:
        subprocess.run(["/bin/rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_writer_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    write_atomically(storage, f"{tmp_path}/a", b"old")
    program = """
import sys, time
from tony_provider.runtime.storage import LocalStorage
def endless():
    yield b"new"
    print("writing", flush=True)
    time.sleep(600)
LocalStorage().write(sys.argv[1], endless(), overwrite=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, f"{tmp_path}/a"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(signal.SIGKILL)
    assert read_bytes(storage, f"{tmp_path}/a") == b"old"
    names = [status.name for status in storage.list(str(tmp_path))]
    assert len(names) == 2
    assert [name for name in names if not is_temporary(name)] == ["a"]


def test_many_make_the_same_directories_at_once(tmp_path: Path) -> None:
    storage = LocalStorage()
    together = threading.Barrier(8)

    def make(number: int) -> None:
        together.wait()
        storage.make_directories(str(tmp_path / str(number) / "a" / "b"))

    with ThreadPoolExecutor(8) as pool:
        for number in range(200):
            list(pool.map(make, [number] * 8))


def test_what_is_read_below_a_directory_lies_there(tmp_path: Path) -> None:
    """Seen: a job puts a link in place of its log, and the API server shows a file of its own."""
    staging, outside = tmp_path / "staging", tmp_path / "airflow.cfg"
    (staging / "logs").mkdir(parents=True)
    outside.write_text("secret")
    (staging / "logs" / "a.log").write_text("printed")
    (staging / "logs" / "inside.log").symlink_to("a.log")
    (staging / "logs" / "b.log").symlink_to(outside)
    (staging / "up").symlink_to("..")
    (tmp_path / "disk").symlink_to(staging)
    for root in (staging, tmp_path / "disk"):
        storage = LocalStorage.confined_to(root)
        for name in ("a.log", "inside.log"):
            assert read_bytes(storage, f"file://{root}/logs/{name}") == b"printed"
        for name in ("logs/b.log", "up/airflow.cfg"):
            with pytest.raises(StorageInvalidPath, match="a link leads out of"):
                read_bytes(storage, f"file://{root}/{name}")
        assert read_bytes(storage, outside.as_uri()) == b"secret"  # another place, which the caller names
    assert read_bytes(LocalStorage(), f"file://{staging}/logs/b.log") == b"secret"
