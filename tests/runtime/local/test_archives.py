"""Archives that lead out of their directory, or unpack to more than there is room for."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tony_provider.runtime.local import archives
from tony_provider.runtime.local.archives import ArchiveError, unpack


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
    "zip: a long link": lambda: zipped(("a", stat.S_IFLNK | 0o777, b"a/" * 9999)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str, tmp_path: Path) -> None:
    archive, inside = tmp_path / "archive", tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    archive.write_bytes(HOSTILE[name]())
    with pytest.raises(ArchiveError):
        unpack(archive, inside)
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
    unpack(archive, inside)
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
        unpack(archive, inside)
    assert list(inside.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(archives, "_MOST_ENTRIES", 0)
    with pytest.raises(ArchiveError, match="entries"):
        unpack(archive, inside)


def test_what_environments_hold(tmp_path: Path) -> None:
    """Links beside and upwards inside of it, and programs."""
    for number, made in enumerate(
        (
            tar(
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
        unpack(archive, inside)
        assert (inside / "lib/py").read_bytes() == b"x"
        assert (inside / "bin/python").is_symlink()
