"""Archives that lead out of their directory, or unpack to more than there is room for."""

from __future__ import annotations

import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tony_provider.runtime.common import archives
from tony_provider.runtime.common.archives import ArchiveError, unpack_archive, unpack_once
from tony_provider.runtime.common.concurrency import Cancelled


def tar(*entries: tuple[str, bytes, str], content: bytes = b"x") -> bytes:
    """Entries: name, type, and what a link leads to."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, kind, target in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            entry.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def zipped(*entries: tuple[str, int, bytes]) -> bytes:
    """Entries: name, mode, content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return made.getvalue()


def headers(kind: bytes, size: int, filler: bytes = b"a") -> bytes:
    """A header of this kind with so many bytes in it, before a file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz", format=tarfile.GNU_FORMAT, preset=0) as archive:
        entry = tarfile.TarInfo("long")
        entry.type, entry.size = kind, size
        archive.addfile(entry, io.BytesIO(filler * size))
        archive.addfile(tarfile.TarInfo("file"))
    return made.getvalue()


def negative() -> bytes:
    """A file that ends before it begins, so that what follows it is itself."""
    entry = tarfile.TarInfo("a")
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def sparse(*parts: tuple[int, int], size: int, stored: int) -> bytes:
    """A sparse file of the older form, that says it has these parts, and the bytes that are stored of it."""
    entry = tarfile.TarInfo("holes")
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, stored
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    for number, part in enumerate(parts):
        header[386 + 24 * number : 410 + 24 * number] = b"%011o\0%011o\0" % part
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(stored) + bytes(-stored % 512 + 1024)


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE
HOSTILE: dict[str, Callable[[], bytes]] = {
    "tar: absolute": lambda: tar(("/tmp/tony-absolute", FILE, "")),
    "tar: upwards": lambda: tar(("a/../../out", FILE, "")),
    "tar: by way of a link": lambda: tar(("a", LINK, ".."), ("a/out", FILE, "")),
    "tar: a directory by way of a link": lambda: tar(("a", LINK, ".."), ("a/out", tarfile.DIRTYPE, "")),
    "tar: hard link by way of a link": lambda: tar(("a", LINK, "../.."), ("b", tarfile.LNKTYPE, "a/archive")),
    "tar: hard link out": lambda: tar(("a", tarfile.LNKTYPE, "../out")),
    "tar: by two links": lambda: tar(
        ("a/b/c", FILE, ""), ("l", LINK, "a/b"), ("l/m", LINK, "../../.."), ("l/m/o", FILE, "")
    ),
    "tar: device": lambda: tar(("a", tarfile.CHRTYPE, "")),
    "tar: fifo": lambda: tar(("a", tarfile.FIFOTYPE, "")),
    "zip: absolute": lambda: zipped(("/tmp/tony-absolute", 0o100644, b"x")),
    "zip: upwards": lambda: zipped(("../out", 0o100644, b"x")),
    "zip: by way of a link": lambda: zipped(("a", stat.S_IFLNK | 0o777, b".."), ("a/out", 0o100644, b"x")),
    "zip: by a name that zipfile shortens": lambda: zipped(
        ("a/b", stat.S_IFLNK | 0o777, b"../../out"), ("a/../b", 0o100644, b"x")
    ),
    "tar: a hard link to a link": lambda: tar(("a", LINK, "../../archive"), ("b", tarfile.LNKTYPE, "a")),
    "tar: a hard link to nothing": lambda: tar(("a", tarfile.LNKTYPE, "b")),
    "tar: a long name": lambda: headers(tarfile.GNUTYPE_LONGNAME, 1 << 20),
    "tar: a long link": lambda: headers(tarfile.GNUTYPE_LONGLINK, 1 << 20),
    "tar: long attributes": lambda: headers(tarfile.XHDTYPE, 1 << 20),
    "tar: long attributes of all": lambda: headers(tarfile.XGLTYPE, 1 << 20),
    "tar: less than nothing": lambda: negative(),
    "tar: a sparse file with more in it than it has": lambda: sparse((0, 4096), size=1, stored=4096),
    "tar: a sparse file whose parts overlap": lambda: sparse((512, 512), (0, 512), size=1024, stored=1024),
    "zip: a long link": lambda: zipped(("a", stat.S_IFLNK | 0o777, b"a/" * 9999)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str, tmp_path: Path) -> None:
    archive, inside = tmp_path / "archive", tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    archive.write_bytes(HOSTILE[name]())
    with pytest.raises(ArchiveError):
        unpack_archive(archive, inside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["inside"]


@pytest.mark.parametrize(
    "made",
    [
        tar(("a", LINK, "../out"), ("a", FILE, "")),
        zipped(("a", stat.S_IFLNK | 0o777, b"../out"), ("a", 0o100644, b"x")),
    ],
)
def test_a_file_in_place_of_a_link_is_a_file(made: bytes, tmp_path: Path) -> None:
    archive, inside = tmp_path / "archive", tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out").write_bytes(b"ours")
    archive.write_bytes(made)
    unpack_archive(archive, inside)
    assert (tmp_path / "out").read_bytes() == b"ours"
    assert (inside / "a").read_bytes() == b"x"
    assert not (inside / "a").is_symlink()


@pytest.mark.parametrize("made", [tar(("a", FILE, ""), content=bytes(1 << 20)), zipped(("a", 0o644, bytes(1 << 20)))])
def test_bombs(made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_BYTES", 1 << 16)
    archive, inside = tmp_path / "archive", tmp_path / "inside"
    inside.mkdir()
    archive.write_bytes(made)
    with pytest.raises(ArchiveError, match="would unpack to"):
        unpack_archive(archive, inside)
    assert list(inside.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 0)
    with pytest.raises(ArchiveError, match="entries"):
        unpack_archive(archive, inside)


def test_what_environments_hold(tmp_path: Path) -> None:
    """Links beside and upwards inside of it, and programs."""
    for number, made in enumerate(
        (
            tar(
                ("./", tarfile.DIRTYPE, ""),  # as `tar -C folder .` has it
                ("bin/python3", FILE, ""),
                ("bin/python", LINK, "python3"),
                ("lib/py", LINK, "../bin/python3"),
                ("bin/base", LINK, "/usr/bin/python3"),  # as venv-pack has it
            ),
            zipped(
                ("bin/python3", 0o100755, b"x"),
                ("bin/python", stat.S_IFLNK | 0o777, b"python3"),
                ("lib/py", stat.S_IFLNK | 0o777, b"../bin/python3"),
            ),
        )
    ):
        archive, inside = tmp_path / f"archive{number}", tmp_path / f"inside{number}"
        inside.mkdir()
        archive.write_bytes(made)
        unpack_archive(archive, inside)
        assert (inside / "lib/py").read_bytes() == b"x"
        assert (inside / "bin/python").is_symlink()


def test_a_sparse_file(tmp_path: Path) -> None:
    archive, inside = tmp_path / "archive", tmp_path / "inside"
    inside.mkdir()
    archive.write_bytes(sparse((1024, 512), size=2048, stored=512))
    unpack_archive(archive, inside)
    assert (inside / "holes").read_bytes() == bytes(2048)


def shared(archive: Path, tmp_path: Path) -> Path:
    target = tmp_path / "shared" / "env"
    unpack_once(archive, target, threading.Event())
    return target


def test_an_archive_is_unpacked_once_by_many(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(tar(("bin/run", FILE, ""), ("bin/link", LINK, "run")))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: shared(archive, tmp_path), range(8)))
    assert (found[0] / "bin" / "link").readlink() == Path("run")
    assert sorted(path.name for path in found[0].parent.iterdir()) == ["env", "env.lock"]


def test_unpacking_is_cancelled(tmp_path: Path) -> None:
    archive, cancelled = tmp_path / "archive", threading.Event()
    archive.write_bytes(tar(("a", FILE, "")))
    cancelled.set()
    with pytest.raises(Cancelled):
        unpack_once(archive, tmp_path / "shared" / "env", cancelled)
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["env.lock"]


def test_what_is_unpacked_is_not_unpacked_again(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(zipped(("a", 0o100644, b"x")))
    found = shared(archive, tmp_path)
    assert (found / "a").read_bytes() == b"x"
    archive.write_bytes(archive.read_bytes()[::-1])
    assert shared(archive, tmp_path) == found


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: headers(tarfile.XHDTYPE, 1 << 20), "an entry's header has more than"),
        # LZMA's oldest form, which says that 1 GiB is to be kept of what was unpacked.
        (lambda: b"\x5d" + (1 << 30).to_bytes(4, "little") + b"\xff" * 8 + bytes(64), "it needs too much memory"),
        (lambda: headers(tarfile.REGTYPE, 1 << 20)[:-200], r"cannot unpack .*archive: "),
        (lambda: tar(("a", tarfile.CHRTYPE, "")), "is a device"),
    ],
)
def test_what_cannot_be_unpacked_leaves_nothing(made: Callable[[], bytes], says: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(made())
    with pytest.raises(ArchiveError, match=says):
        shared(archive, tmp_path)
    assert [path for path in (tmp_path / "shared").iterdir() if path.is_dir()] == []


def test_a_process_that_does_not_start_has_unpacked_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: Python's own exit code 1 was taken for success, and the job's program missed its files."""
    monkeypatch.setattr(archives, "_PROGRAM", "no.such.module")
    (tmp_path / "a.tar.gz").write_bytes(tar(("a", tarfile.REGTYPE, "")))
    with pytest.raises(ArchiveError, match=r"process ended \(1\): .* or could not start"):
        unpack_once(tmp_path / "a.tar.gz", tmp_path / "unpacked", threading.Event())
    assert not (tmp_path / "unpacked").exists()
