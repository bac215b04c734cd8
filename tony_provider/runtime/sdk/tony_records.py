"""Read the records of a shard, which is a file or a piece of a file. Used by ``shard.records()``.

In text and TFRecords, a record belongs to the piece in which it begins. The reader of a piece searches for the first
record, and reads the last record to its end, even beyond the piece. So each record of a file is in exactly one piece.

Needs only Python 3.8, and pyarrow for Parquet.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import importlib
import io
import lzma
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Optional

if TYPE_CHECKING:
    from tony_provider.runtime.sdk.tony_inputs import Opener, TaskShard

DECOMPRESSED: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
UNREAD = (".zst", ".zstd", ".lz4", ".lzo", ".snappy", ".deflate", ".zip", ".br")
"""Suffixes of compressed files that the standard library cannot read."""

_BUFFER = 1 << 20  # bytes
_HEADER = struct.Struct("<QI")  # header of a TFRecord: length in bytes, and the checksum of the length
_FOOTER = 4  # bytes: checksum of the data
_WINDOW = 1 << 20  # bytes to search at a time for the beginning of a record


class RecordError(ValueError):
    """The records of a file cannot be read. The message gives the reason, but not the file."""


def records(shard: TaskShard, opener: Optional[Opener] = None) -> Iterator[Any]:
    """Return the records of a shard, see ``TaskShard.records``."""
    error_type = importlib.import_module("tony_inputs").InputError
    read = _READERS.get(shard.format or "")
    if read is None:
        raise error_type(f"{shard.uri}: the file format is unknown; set the input's `format` in the job")
    return _named(shard, read(shard, opener), error_type)


def _named(shard: TaskShard, found: Iterator[Any], error_type: type[Exception]) -> Iterator[Any]:
    try:
        yield from found
    except (ValueError, OSError, EOFError, ImportError, lzma.LZMAError) as error:
        raise error_type(f"{shard.uri}: {error}") from error


def read_lines(file: BinaryIO, offset: int = 0, end: Optional[int] = None) -> Iterator[bytes]:
    r"""Yield the lines that begin in [``offset``, ``end``) without ``\n`` or ``\r\n``."""
    position = _behind_line(file, offset - 1, end) if offset else 0
    while end is None or position < end:
        line = file.readline()
        if not line:
            return
        position += len(line)
        yield line[: -2 if line.endswith(b"\r\n") else -1] if line.endswith(b"\n") else line


def _behind_line(file: BinaryIO, position: int, end: Optional[int]) -> int:
    """Seek to the beginning of the first line after ``position``, and return the new position.

    The new position is ``end`` or more if no line begins before ``end``.
    """
    file.seek(position)
    while end is None or position < end:
        part = file.read(_BUFFER)
        found = part.find(b"\n") + 1
        position += found or len(part)
        if found or not part:
            file.seek(position)
            break
    return position


def read_tfrecords(file: BinaryIO) -> Iterator[bytes]:
    """Yield all records of a file. Raises RecordError. Does not verify checksums of data, which is slow in Python."""
    position = 0
    while header := file.read(_HEADER.size):
        data = _data(file, header, position)
        yield data
        position += _HEADER.size + len(data) + _FOOTER


def read_tfrecord_piece(file: BinaryIO, size: int, offset: int, end: int) -> Iterator[bytes]:
    """Yield the records of a file of ``size`` bytes that begin in [``offset``, ``end``).

    A position counts as the beginning of a record if the checksums of two lengths are valid: of this record and of the
    next record. Records that contain other TFRecords can look the same inside. Therefore, this reader checks that the
    reader of the next piece will begin where this piece ends. If all pieces are read without an error, each record has
    been read once. Raises RecordError.
    """
    position = _first_record(file, size, offset, end) if offset else 0
    if position is None:
        return
    file.seek(position)
    while position < end:
        data = _data(file, file.read(_HEADER.size), position)
        yield data
        position += _HEADER.size + len(data) + _FOOTER
    following = None if position >= size else position
    if end < size and _first_record(file, size, end, min(size, position + 1)) != following:
        what = f"cannot find the start of a record between bytes {end} and {position}"
        raise RecordError(f"{what}: the records contain TFRecords, or are damaged; leave out `split_size`")


def _first_record(file: BinaryIO, size: int, begin: int, end: int) -> Optional[int]:
    """Return the first position before ``end`` with a record, followed by another record or the end of the file."""
    zeros = bytes(8 - (size.bit_length() + 7) // 8)  # high bytes of any valid length: fast to search for
    while begin < end:
        file.seek(begin)
        window = file.read(min(_WINDOW, end - begin) + _HEADER.size - 1)
        found = -1
        while (found := window.find(zeros, found + 1 + 8 - len(zeros)) - 8 + len(zeros)) >= 0:
            header = window[found : found + _HEADER.size]
            if begin + found < end and _is_record(file, size, begin + found, header):
                return begin + found
        begin += _WINDOW
    return None


def _is_record(file: BinaryIO, size: int, position: int, header: bytes) -> bool:
    length = _length(header)
    if length is None:
        return False
    following = position + _HEADER.size + length + _FOOTER
    if following >= size:
        return following == size
    file.seek(following)
    return _length(file.read(_HEADER.size)) is not None


def _length(header: bytes) -> Optional[int]:
    """Return the length of a record's data, or None if ``header`` is not a valid header."""
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    return int(length) if _masked_crc32c(header[:8]) == checksum else None


def _data(file: BinaryIO, header: bytes, position: int) -> bytes:
    """Read and return the data of the record at ``position``, whose header was just read. Raises RecordError."""
    length = _length(header)
    if length is None:
        raise RecordError(f"there is no TFRecord at byte {position}; the file is damaged or compressed")
    data = file.read(length + _FOOTER)
    if len(data) < length + _FOOTER:
        raise RecordError(f"the TFRecord at byte {position} is cut short")
    return data[:length]


@functools.lru_cache(maxsize=1 << 12)
def _masked_crc32c(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecords: rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_entry(byte) for byte in range(256)]


def _lines_of(shard: TaskShard, opener: Optional[Opener]) -> Iterator[bytes]:
    with _open(shard, opener) as file:
        if shard.offset is None or shard.length is None:
            yield from read_lines(file)
        else:
            yield from read_lines(file, shard.offset, shard.offset + shard.length)


def _tfrecords_of(shard: TaskShard, opener: Optional[Opener]) -> Iterator[bytes]:
    with _open(shard, opener) as file:
        if shard.offset is None or shard.length is None:
            yield from read_tfrecords(file)
        else:
            yield from read_tfrecord_piece(file, shard.size, shard.offset, shard.offset + shard.length)


def _rows_of(shard: TaskShard, opener: Optional[Opener]) -> Iterator[Any]:
    parquet = importlib.import_module("pyarrow.parquet")
    with _open(shard, opener) as file:
        opened = parquet.ParquetFile(file)
        groups = None if shard.row_groups is None else list(shard.row_groups)
        for batch in opened.iter_batches(row_groups=groups):
            yield from batch.to_pylist()


_READERS: dict[str, Callable[[TaskShard, Optional[Opener]], Iterator[Any]]] = {
    "lines": _lines_of,
    "tfrecord": _tfrecords_of,
    "parquet": _rows_of,
}


@contextmanager
def _open(shard: TaskShard, opener: Optional[Opener]) -> Iterator[Any]:
    """Open the shard's file. Decompress the file if its name has the suffix of a known compression."""
    end = os.path.splitext(shard.uri)[1].lower()  # noqa: PTH122 - the URI may not be a path
    if shard.format == "parquet":
        end = ""  # Parquet compresses internally, so ignore the suffix
    if end in UNREAD:
        raise RecordError(f"{end} files are not decompressed; read the file by its path, or compress it as .gz")
    with _open_raw(shard, opener) as raw:
        if end not in DECOMPRESSED:
            yield raw
            return
        with DECOMPRESSED[end](raw) as file:
            yield file


def _open_raw(shard: TaskShard, opener: Optional[Opener]) -> Any:
    if opener is not None:
        return opener(shard.path)
    if shard.path.startswith("/"):
        return open(shard.path, "rb", buffering=_BUFFER)  # noqa: PTH123
    if shard.uri.startswith("hdfs://"):
        filesystem, path = importlib.import_module("pyarrow.fs").FileSystem.from_uri(shard.uri)
        return io.BufferedReader(filesystem.open_input_file(path), _BUFFER)
    return importlib.import_module("fsspec").open(shard.uri, "rb").open()
