from __future__ import annotations

import hashlib
import io
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.artifacts import manifest
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.storage import LocalStorage


@given(st.lists(st.binary(max_size=100)))
def test_it_is_that_of_all_pieces_together(pieces: list[bytes]) -> None:
    summed = {algorithm: manifest.Checksum(algorithm) for algorithm in ("crc32", "sha256")}
    for piece in pieces:
        for one in summed.values():
            one.update(piece)
    assert summed["crc32"].text == f"crc32:{zlib.crc32(b''.join(pieces)):08x}"
    assert summed["sha256"].text == f"sha256:{hashlib.sha256(b''.join(pieces)).hexdigest()}"


@given(st.lists(st.binary(max_size=5000)))
def test_checksums_of_parts_become_that_of_the_file(parts: list[bytes]) -> None:
    whole = manifest.Checksum()
    for part in parts:
        summed = manifest.Checksum()
        summed.update(part)
        whole.append(summed)
    data = b"".join(parts)
    assert (whole.text, whole.size) == (f"crc32:{zlib.crc32(data):08x}", len(data))


@pytest.mark.parametrize("text", ["", "crc32", "crc32:", "adler:00", ":00", "0011"])
def test_what_is_no_checksum_is_refused(text: str) -> None:
    with pytest.raises(manifest.UnknownChecksum):
        manifest.algorithm_of(text)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(manifest.UnknownChecksum):
        manifest.Checksum("crc64")


@pytest.mark.parametrize("algorithm", ["crc32", "sha256", "sha512", "sha1", "md5", "blake2b"])
def test_a_file(tmp_path: Path, algorithm: str) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(data)
    summed = manifest.Checksum(algorithm)
    summed.update(data)
    assert manifest.file_checksum(tmp_path / "file", algorithm) == summed.text
    assert manifest.algorithm_of(summed.text) == algorithm


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        manifest.file_checksum(tmp_path / "file", cancelled=cancelled)


@given(st.binary(max_size=5000), st.integers(1, 2000), st.integers(0, 3))
def test_a_file_that_is_sent_anew_is_summed_up_anew(data: bytes, piece: int, false_starts: int) -> None:
    summed = manifest.SummedFile(io.BytesIO(data))
    assert summed.seek(0, io.SEEK_END) == len(data)
    for _ in range(false_starts):
        summed.seek(0)
        summed.read(piece)
    summed.seek(0)
    while summed.read(piece):
        pass
    assert (summed.checksum.text, summed.checksum.size) == (f"crc32:{zlib.crc32(data):08x}", len(data))


def test_a_file_is_not_summed_up_with_a_gap() -> None:
    summed = manifest.SummedFile(io.BytesIO(b"0123456789"))
    summed.read(3)
    summed.seek(5)
    with pytest.raises(OSError, match="from its beginning"):
        summed.read(1)


def test_a_store_takes_it_for_a_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    summed = manifest.SummedFile(io.BytesIO(data))
    LocalStorage().write(f"file://{tmp_path}/copy", summed)  # type: ignore[arg-type]
    assert (tmp_path / "copy").read_bytes() == data
    assert summed.checksum.text == manifest.file_checksum(tmp_path / "copy")
