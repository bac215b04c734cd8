"""What every store promises, on local disk, on a real HDFS, and on object stores."""

from __future__ import annotations

import io
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.storage.conftest import HDFS, KINDS, OBJECT_STORES, Place, new_place
from tony_provider.runtime.storage import (
    Source,
    StorageError,
    StorageExists,
    StorageInvalidPath,
    StorageIsADirectory,
    StorageNotADirectory,
    StorageNotEmpty,
    StorageNotFound,
    StorageUnsupported,
    download,
    is_temporary,
    read_bytes,
    read_text,
    upload,
    walk,
    write_atomically,
)

MIB = 1 << 20
DEADLINE = 60.0  # seconds
MANY_EXAMPLES = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(params=(*KINDS, "httpfs", "s3"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from new_place(request, tmp_path)


def no_slash(text: str) -> bool:
    return text not in (".", "..") and len(text.encode()) <= 120 and not is_temporary(text)


# HDFS refuses colons, and the memory store trims line ends and blanks off paths.
NAMES = st.text(
    st.characters(exclude_characters="/:\0\n\r", exclude_categories=("Cs", "Zl", "Zp", "Cc")), min_size=1, max_size=30
).filter(no_slash)


def has_permissions(place: Place) -> bool:
    return place.kind not in OBJECT_STORES


def test_status_of_a_file(place: Place) -> None:
    before = int(time.time() * 1000)
    assert place.storage.write(place.uri("a"), b"hello") == 5
    written = place.storage.status(place.uri("a"))
    assert (written.path, written.name, written.size, written.is_directory) == (place.uri("a"), "a", 5, False)
    assert before - 2000 <= written.modified_ms <= time.time() * 1000 + 2000
    if has_permissions(place):
        assert written.owner
        assert written.permission == 0o600


def test_status_of_a_directory_and_of_nothing(place: Place) -> None:
    place.write("d/a", b"x")
    status = place.storage.status(place.uri("d"))
    assert (status.is_directory, status.size, status.name) == (True, 0, "d")
    for missing in ("no", "d/no", "d/a/no"):
        assert not place.storage.exists(place.uri(missing))
        with pytest.raises(StorageNotFound) as error:
            place.storage.status(place.uri(missing))
        assert missing in str(error.value)
    assert place.storage.exists(place.uri("d"))


def test_a_checksum_is_the_same_for_the_same_content(place: Place) -> None:
    for name, content in (("a", b"hello"), ("b", b"hello"), ("c", b"other"), ("empty", b"")):
        place.write(name, content)
    found = {name: place.storage.checksum(place.uri(name)) for name in ("a", "b", "c", "empty")}
    if place.kind == "local":
        assert set(found.values()) == {None}
        return
    if place.kind != "memory":  # it counts its writes
        assert found["a"] == found["b"]
    assert found["a"] != found["c"]
    assert all(checksum is not None and ":" in checksum for checksum in found.values())
    assert str(found["a"]).startswith("MD5-of-0MD5-of-512CRC32C:" if place.kind in HDFS else "ETag:")
    with pytest.raises(StorageNotFound):
        place.storage.checksum(place.uri("missing"))


def test_the_version_of_a_file_changes_with_each_write_also_of_as_many_bytes(place: Place) -> None:
    uri = place.uri("a")
    place.write("a", b"hello")
    first = place.storage.version(uri)
    if place.kind in OBJECT_STORES:
        assert first is None
        return
    assert first is not None
    assert place.storage.version(uri) == first
    place.storage.rename(uri, place.uri("b"))
    if place.kind in HDFS:
        assert place.storage.version(place.uri("b")) == first
    place.write("a", b"hellO")
    assert place.storage.version(uri) not in (None, first)
    with pytest.raises(StorageNotFound):
        place.storage.version(place.uri("missing"))


def test_list_is_sorted_and_shallow(place: Place) -> None:
    for name in ("b", "a", "c/deep", "B"):
        place.write(name, name.encode())
    found = place.storage.list(place.root)
    assert [status.name for status in found] == ["B", "a", "b", "c"]
    assert [status.is_directory for status in found] == [False, False, False, True]
    assert found[1] == place.storage.status(place.uri("a"))
    with pytest.raises(StorageNotADirectory):
        place.storage.list(place.uri("a"))
    with pytest.raises(StorageNotFound):
        place.storage.list(place.uri("no"))


def test_an_empty_directory_lists_nothing(place: Place) -> None:
    if place.kind in OBJECT_STORES:
        pytest.skip("object stores have no empty directories")
    place.storage.make_directories(place.uri("empty"))
    assert place.storage.list(place.uri("empty")) == []


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 0, b""),
        (8, 100, b"89"),
        (10, None, b""),
        (99, 1, b""),
    ],
)
def test_read_a_range(place: Place, offset: int, length: int | None, expected: bytes) -> None:
    uri = place.write("a", b"0123456789")
    assert read_bytes(place.storage, uri, offset=offset, length=length) == expected


def test_read_refuses_what_is_no_file(place: Place) -> None:
    with pytest.raises(StorageNotFound):
        place.storage.open_read(place.uri("no"))
    assert read_bytes(place.storage, place.write("empty")) == b""
    with pytest.raises(StorageIsADirectory):
        place.storage.open_read(place.root)


def chunks(data: bytes) -> Iterator[bytes]:
    yield b""
    for start in range(0, len(data), 700_001):
        yield data[start : start + 700_001]


class Pipe(io.RawIOBase):
    """A file that cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        return self._inner.readinto(buffer)


def as_file_in_the_middle(data: bytes) -> BinaryIO:
    file = io.BytesIO(b"skipped" + data)
    file.seek(len(b"skipped"))
    return file


@pytest.mark.parametrize("size", [0, 1, 3 * MIB + 17, 20 * MIB])
@pytest.mark.parametrize("form", [bytes, chunks, Pipe, as_file_in_the_middle])
def test_write_from_any_source(place: Place, form: type[bytes], size: int) -> None:
    data = bytes(range(251)) * (size // 251) + bytes(size % 251)
    source: Source = form(data)
    assert place.storage.write(place.uri("a"), source) == size
    assert read_bytes(place.storage, place.uri("a")) == data
    assert place.names() == ["a"]


def test_write_replaces_only_when_told(place: Place) -> None:
    uri = place.write("a", b"old")
    with pytest.raises(StorageExists):
        place.storage.write(uri, b"new")
    assert read_bytes(place.storage, uri) == b"old"
    write_atomically(place.storage, uri, b"new")
    assert read_text(place.storage, uri) == "new"
    assert place.names() == ["a"]


def test_write_onto_a_directory_or_below_a_file(place: Place) -> None:
    if place.kind in OBJECT_STORES:
        pytest.skip("on object stores, a file may have the name of a directory")
    place.write("d/a")
    for overwrite in (False, True):
        with pytest.raises(StorageIsADirectory):
            place.storage.write(place.uri("d"), b"x", overwrite=overwrite)
    with pytest.raises(StorageNotADirectory):
        place.storage.write(place.uri("d/a/b"), b"x")
    assert place.names("d") == ["a"]


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_a_source_that_fails_leaves_what_was(place: Place, size: int) -> None:
    def failing() -> Iterator[bytes]:
        yield bytes(size)
        raise LookupError("the source broke")

    place.write("old", b"old")
    for name in ("old", "new"):
        with pytest.raises(LookupError):
            place.storage.write(place.uri(name), failing(), overwrite=True)
    assert place.names() == ["old"]
    assert read_bytes(place.storage, place.uri("old")) == b"old"


def test_files_are_joined(place: Place) -> None:
    uris = [place.write(name, data) for name, data in (("a", b"1"), ("b", b"22"), ("c", b"333"))]
    assert place.storage.can_join(place.root) is (place.kind in HDFS)
    if place.kind not in HDFS:
        with pytest.raises(StorageUnsupported, match="the store cannot do this"):
            place.storage.join(uris[0], uris[1:])
        return
    place.storage.join(uris[0], uris[1:])
    assert place.names() == ["a"]
    assert read_bytes(place.storage, uris[0]) == b"122333"
    with pytest.raises(StorageNotFound):
        place.storage.join(uris[0], uris[1:])


def test_of_several_writers_one_wins(place: Place) -> None:
    if place.kind == "s3":
        pytest.skip("S3Proxy checks the condition of a write before it writes, not at the same time")
    writers = 4
    start = threading.Barrier(writers, timeout=30)

    def write(number: int) -> int | None:
        start.wait()
        try:
            place.storage.write(place.uri("owner"), b"%d" % number)
        except StorageExists:
            return None
        return number

    with ThreadPoolExecutor(writers) as pool:
        won = [number for number in pool.map(write, range(writers)) if number is not None]
    assert len(won) == 1
    assert read_bytes(place.storage, place.uri("owner")) == b"%d" % won[0]
    assert place.names() == ["owner"]


def test_readers_never_see_half_a_file(place: Place) -> None:
    uri = place.write("status", b"0" * 100_000)
    done = threading.Event()

    def rewrite() -> None:
        try:
            for number in range(20):
                write_atomically(place.storage, uri, b"%d" % (number % 10) * 100_000)
        finally:
            done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(rewrite)
        while not done.is_set():
            try:
                data = read_bytes(place.storage, uri)
            except StorageError as error:  # HDFS deletes the old file's blocks while it is being read
                assert place.kind in HDFS, error  # noqa: PT017
                continue
            assert len(data) == 100_000
            assert len(set(data)) == 1
        writing.result()


def test_explicit_permissions(place: Place) -> None:
    if not has_permissions(place):
        pytest.skip("object stores have none")
    place.storage.write(place.uri("x/y/open"), b"", permission=0o644)
    place.storage.make_directories(place.uri("p/q"), permission=0o777)
    place.storage.make_directories(place.uri("p"), permission=0o700)
    permissions = {status.path: status.permission for status in walk(place.storage, place.root)}
    assert permissions == {
        place.uri("x"): 0o700,
        place.uri("x/y"): 0o700,
        place.uri("x/y/open"): 0o644,
        place.uri("p"): 0o777,
        place.uri("p/q"): 0o777,
    }


def test_make_directories(place: Place) -> None:
    if place.kind in OBJECT_STORES:
        pytest.skip("object stores have no empty directories")
    place.storage.make_directories(place.uri("a/b/c"))
    place.storage.make_directories(place.uri("a/b/c"))
    assert place.storage.status(place.uri("a/b/c")).is_directory
    file = place.write("file")
    for below in (file, f"{file}/d", f"{file}/d/e"):
        with pytest.raises(StorageNotADirectory):
            place.storage.make_directories(below)


def test_rename_a_file(place: Place) -> None:
    source, target = place.write("a", b"a"), place.write("b", b"b")
    with pytest.raises(StorageExists):
        place.storage.rename(source, target)
    assert place.names() == ["a", "b"]
    place.storage.rename(source, target, overwrite=True)
    assert place.names() == ["b"]
    assert read_bytes(place.storage, target) == b"a"
    place.storage.make_directories(place.uri("d"))
    place.storage.rename(target, place.uri("d/c"))
    assert place.names("d") == ["c"]


def test_rename_a_directory(place: Place) -> None:
    place.write("a/x/y", b"1")
    place.write("full/z")
    place.storage.make_directories(place.uri("empty"))
    for target in ("full",) if place.kind in OBJECT_STORES else ("empty", "full"):
        with pytest.raises(StorageExists):
            place.storage.rename(place.uri("a"), place.uri(target))
    with pytest.raises(StorageNotEmpty):
        place.storage.rename(place.uri("a"), place.uri("full"), overwrite=True)
    place.storage.rename(place.uri("a"), place.uri("empty"), overwrite=True)
    place.storage.rename(place.uri("empty"), place.uri("b"))
    assert place.names() == ["b", "full"]
    assert read_bytes(place.storage, place.uri("b/x/y")) == b"1"


@pytest.mark.parametrize("overwrite", [False, True])
def test_rename_refuses_to_mix_files_and_directories(place: Place, overwrite: bool) -> None:
    if place.kind in OBJECT_STORES:
        pytest.skip("object stores have no empty directories")
    place.write("file", b"f")
    place.storage.make_directories(place.uri("directory"))
    for source, target in (("file", "directory"), ("directory", "file"), ("file", "file")):
        with pytest.raises(StorageExists):
            place.storage.rename(place.uri(source), place.uri(target), overwrite=overwrite)
    assert place.names() == ["directory", "file"]


def test_what_is_no_mount_point_may_be_replaced(place: Place) -> None:
    place.write("d/a", b"x")
    for name in ("d", "d/a", "no", "no/deeper"):
        assert place.storage.rename_target_problem(place.uri(name)) == ""
    assert (place.names(), place.names("d")) == (["d"], ["a"])


def test_rename_of_nothing_or_to_nowhere(place: Place) -> None:
    with pytest.raises(StorageNotFound):
        place.storage.rename(place.uri("no"), place.uri("b"), overwrite=True)
    if place.kind not in OBJECT_STORES:  # they have no directories that could be missing
        with pytest.raises(StorageNotFound):
            place.storage.rename(place.write("a"), place.uri("no/a"))


def test_remove(place: Place) -> None:
    place.write("d/a/b")
    place.write("file")
    assert place.storage.remove(place.uri("file"))
    assert not place.storage.remove(place.uri("file"))
    assert not place.storage.remove(place.uri("d/a/b/c"), recursive=True)
    with pytest.raises(StorageNotEmpty):
        place.storage.remove(place.uri("d"))
    assert place.storage.remove(place.uri("d"), recursive=True)
    assert place.names() == []
    place.storage.make_directories(place.uri("empty"))
    assert place.storage.remove(place.uri("empty")) is (place.kind not in OBJECT_STORES)


def test_the_root_is_never_removed(place: Place) -> None:
    root = place.root.split("://", 1)[0] + ":///"
    with pytest.raises(StorageInvalidPath):
        place.storage.remove(root, recursive=True)


@pytest.mark.parametrize("bad", ["../x", "a/../../x", "./x", "a\0b"])
def test_paths_that_lead_elsewhere_are_refused(place: Place, bad: str) -> None:
    with pytest.raises(StorageInvalidPath):
        place.storage.write(place.uri(bad), b"x")
    with pytest.raises(StorageInvalidPath):
        place.storage.status("relative/path")
    with pytest.raises(StorageInvalidPath):
        place.storage.status("gopher://elsewhere/a")


lists_names = pytest.mark.skipif(sys.version_info < (3, 10), reason="obstore for Python 3.9 quotes names")


@lists_names
@MANY_EXAMPLES
@given(name=NAMES, data=st.binary(max_size=100))
def test_odd_names(place: Place, name: str, data: bytes) -> None:
    directory = place.uri(f"d {name}")
    uri = f"{directory}/{name}"
    assert place.storage.write(uri, data, overwrite=True) == len(data)
    written = place.storage.status(uri)
    assert (written.path, written.name) == (uri, name)
    assert place.storage.list(directory) == [written]
    place.storage.rename(uri, f"{uri}+%2f", overwrite=True)
    assert read_bytes(place.storage, f"{uri}+%2f") == data
    assert place.storage.remove(directory, recursive=True)


@lists_names
@pytest.mark.parametrize(
    "name",
    [
        *("a b", "100%", "%41", "1+1", "é✓", "#a", "?op=DELETE&x=y", "a;b", "[a]*{b}", "'\"\\"),
        *("\U0002f800", "e\u0301"),  # which Java composes
        *(">\u0301", "|\u0327", "<\u0338e\u0301"),  # after it has quoted a part
    ],
)
def test_names_that_mean_something_elsewhere(place: Place, name: str) -> None:
    place.storage.write(place.uri(f"{name}/{name}"), b"x")
    assert read_bytes(place.storage, place.uri(f"{name}/{name}")) == b"x"
    assert place.names() == place.names(name) == [name]
    assert [status.path for status in walk(place.storage, place.root)] == [
        place.uri(name),
        place.uri(f"{name}/{name}"),
    ]


def test_upload_and_download(place: Place, tmp_path: Path) -> None:
    local = tmp_path / "here"
    local.write_bytes(b"x" * (2 * MIB + 3))
    assert upload(place.storage, local, place.uri("there")) == 2 * MIB + 3
    back = tmp_path / "back"
    assert download(place.storage, place.uri("there"), back) == 2 * MIB + 3
    assert back.read_bytes() == local.read_bytes()
    with pytest.raises(StorageNotFound):
        download(place.storage, place.uri("no"), tmp_path / "no")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["back", "here"]


def test_walk(place: Place) -> None:
    for name in ("a/1", "a/b/2", "3"):
        place.write(name)
    found = [status.path.removeprefix(place.root + "/") for status in walk(place.storage, place.root)]
    assert found == ["3", "a", "a/1", "a/b", "a/b/2"]
    with pytest.raises(StorageNotFound):
        list(walk(place.storage, place.uri("no")))


@pytest.mark.parametrize("size", [1, 11_000, 12_001])
def test_a_record_is_read_as_any_other_file(place: Place, size: int) -> None:
    data = random.Random(size).randbytes(size)
    is_record = place.storage.write_record(place.uri("d/record"), data)
    assert is_record == (place.kind in HDFS and size < 12_000)
    assert place.storage.status(place.uri("d/record")).size == (0 if is_record else size)
    assert read_bytes(place.storage, place.uri("d/record")) == data
    assert read_bytes(place.storage, place.uri("d/record"), offset=1, length=3) == data[1:4]
    (listed,) = place.storage.list(place.uri("d"))
    with place.storage.open_record(listed) as stream:
        assert stream.read() == data
    with pytest.raises(StorageExists):
        place.storage.write_record(place.uri("d/record"), b"another")
    place.storage.write_record(place.uri("d/record"), b"the next", overwrite=True)
    assert read_bytes(place.storage, place.uri("d/record")) == b"the next"
    write_atomically(place.storage, place.uri("d/record"), b"")
    assert read_bytes(place.storage, place.uri("d/record")) == b""
    assert place.names("d") == ["record"]
