"""Hashes of large files that are remembered, and what is noticed all the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from tony_provider.cluster import sources
from tony_provider.cluster.sources import sha256_of_local, sha256_of_stored
from tony_provider.runtime.storage.local import LocalStorage


class Counting(LocalStorage):
    reads = 0

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> BinaryIO:
        self.reads += 1
        return super().open_read(uri, offset=offset, length=length)


class WithoutVersions(Counting):
    def version(self, uri: str) -> str | None:
        return None


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_SMALL", 10)
    return tmp_path / "cache"


def rewritten(path: Path, content: bytes) -> None:
    """With the size and the times that it had."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_large_file_is_read_once_until_it_is_rewritten(tmp_path: Path) -> None:
    path, storage = tmp_path / "env.tar", Counting()
    path.write_bytes(b"honest" * 10)
    for content, reads in ((b"honest", 1), (b"POISON", 2)):
        if content == b"POISON":
            rewritten(path, content * 10)
        for _ in range(3):
            found = sha256_of_stored(storage, storage.status(path.as_uri()))
            assert found == sha256_of_local(path) == hashlib.sha256(content * 10).hexdigest()
        assert storage.reads == reads


@pytest.mark.parametrize(("size", "storage"), [(5, Counting()), (60, WithoutVersions())])
def test_small_files_and_those_without_a_version_are_read_each_time(
    tmp_path: Path, cache: Path, size: int, storage: Counting
) -> None:
    path = tmp_path / "env.tar"
    path.write_bytes(bytes(size))
    for _ in range(2):
        assert sha256_of_stored(storage, storage.status(path.as_uri())) == hashlib.sha256(bytes(size)).hexdigest()
    assert storage.reads == 2
    assert not cache.exists()


def test_a_note_that_is_no_hash_is_not_believed(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "env.tar"
    path.write_bytes(bytes(60))
    honest = sha256_of_local(path)
    [note] = (cache / "tony-provider" / "contents").iterdir()
    note.write_text("x")
    assert sha256_of_local(path) == honest
    assert note.read_text() == honest


def test_old_notes_go(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_NOTES", 3)
    for number in range(5):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(bytes([number]) * 60)
        sha256_of_local(path)
    assert len(list((cache / "tony-provider" / "contents").iterdir())) == 3
