"""Files of TensorFlow and Keras: indexes of tensor bundles, HDF5 files, ``.keras`` archives and epochs.

The index of a tensor bundle is a LevelDB table: blocks of sorted keys and values, and a footer that points to the
blocks. Each block has a checksum. The value of the empty key is a BundleHeaderProto. Every other value is a
BundleEntryProto with the location of a tensor: data file, offset and number of bytes. These locations give the minimum
sizes of the data files.

Time and memory are proportional to the size of the index, because overlapping blocks are rejected and keys are not
expanded. Keys share prefixes, so a few bytes of a malicious index could stand for very long keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.zips import HIGHEST_COUNT, Unreadable, is_count, json_object, whole
from tony_provider.runtime.common.binary import (
    EndlessNumber,
    InvalidMessage,
    crc32c,
    masked_crc32c,
    message_fields,
    read_varint,
)

_FOOTER = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_TRAILER = 5  # bytes after a block: its compression type (1) and checksum (4)
_HEADER_SHARDS = 1  # field number in BundleHeaderProto; the next three are in BundleEntryProto
_ENTRY_SHARD, _ENTRY_OFFSET, _ENTRY_SIZE = 3, 4, 5
_MOST_BYTES = 32 << 20  # size limit of an index, enough for several hundred thousand tensors
_MOST_SHARDS = 100_000


def read_bundle_index(path: Path) -> list[int]:
    """Read an index file and return its ``shard_sizes``. Raises Unreadable, OSError."""
    return shard_sizes(whole(path, _MOST_BYTES))


def shard_sizes(index: bytes) -> list[int]:
    """Return the minimum size in bytes of each data file that an index lists. Raises Unreadable."""
    try:
        entries = _table(index)
        length, header = next(entries, (1, b""))
        if length:
            raise Unreadable("the index has no header")
        shards = _varint_fields(header).get(_HEADER_SHARDS, 0)
        if not 0 < shards <= _MOST_SHARDS:
            raise Unreadable(f"the index lists {shards} data files")
        sizes = [0] * shards
        for _, value in entries:
            fields = _varint_fields(value)
            shard = fields.get(_ENTRY_SHARD, 0)
            end = fields.get(_ENTRY_OFFSET, 0) + fields.get(_ENTRY_SIZE, 0)
            if end >= HIGHEST_COUNT:
                raise Unreadable(f"the index lists a data file of {end} bytes")
            sizes[shard] = max(sizes[shard], end)
    except (IndexError, EndlessNumber, InvalidMessage) as error:
        raise Unreadable("the index is cut short or damaged") from error
    return sizes


def shard_name(prefix: str, shard: int, shards: int) -> str:
    """Return the name of data file number ``shard`` of ``shards``."""
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


def _table(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield pairs from a LevelDB table: the length of a key, and the value of the key. Raises Unreadable."""
    if len(data) < _FOOTER or data[-len(_MAGIC) :] != _MAGIC:
        raise Unreadable("the index has no footer: it is cut short or was never finished")
    footer = data[-_FOOTER:]
    meta, at = _handle(footer, 0)  # the metaindex block has no entries, so only its checksum is verified
    root, _ = _handle(footer, at)
    _block(data, *meta)
    left = len(data)  # bytes left for further blocks; negative if blocks overlap
    for _, value in _entries(_block(data, *root)):
        (offset, size), _ = _handle(value, 0)
        left -= size + _TRAILER
        if left < 0:
            raise Unreadable("the index is damaged: its blocks overlap")
        yield from _entries(_block(data, offset, size))


def _block(data: bytes, offset: int, size: int) -> bytes:
    block = data[offset : offset + size + _TRAILER]
    if len(block) < size + _TRAILER or offset + len(block) > len(data) - _FOOTER:
        raise Unreadable("the index refers to data beyond its own end")
    if masked_crc32c(crc32c(block[:-4])) != int.from_bytes(block[-4:], "little"):
        raise Unreadable("the index is damaged: a checksum in it is wrong")
    if block[size]:
        raise Unreadable("the index is compressed, which TensorFlow does not do")
    return block[:size]


def _entries(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the length and the value of each key in a block. A key may share a prefix with the previous key."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise Unreadable("the index is damaged: a block has no end")
    at = length = 0
    while at < end:
        shared, at = read_varint(block, at)
        more, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > length or at + more + size > end:
            raise Unreadable("the index is damaged: an entry is longer than its block")
        length = shared + more
        yield length, block[at + more : at + more + size]
        at += more + size


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _varint_fields(message: bytes) -> dict[int, int]:
    """Return the varint fields of a protobuf message, by field number. Raises InvalidMessage."""
    return {number: value for number, value in message_fields(message) if isinstance(value, int)}


_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_END_AT = {0: 40, 1: 44, 2: 28, 3: 28}  # offset of the end-of-file address, by version of the superblock


def check_hdf5(path: Path) -> None:
    """Check that an HDF5 file is complete. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        beginning = file.read(64)
        size = file.seek(0, 2)
    if len(beginning) < 64 or beginning[:8] != _HDF5_MAGIC:
        raise Unreadable("it does not start with an HDF5 signature")
    version = beginning[8]
    if version not in _END_AT:
        raise Unreadable(f"version {version} of HDF5's superblock is unknown")
    offset_size = beginning[13 if version < 2 else 9]
    if offset_size != 8:
        raise Unreadable(f"its addresses have {offset_size} bytes instead of 8")
    (end,) = struct.unpack_from("<Q", beginning, _END_AT[version])
    if size != end:
        raise Unreadable(f"it has {size} bytes, but {end} according to its header: it is incomplete")


_CONFIG = "config.json"  # required member of an archive
_MOST_KERAS_BYTES = 1 << 20  # size limit of training_metadata.json


def check_keras_archive(path: Path) -> None:
    """Check that a ``.keras`` archive is complete. Raises Unreadable, OSError."""
    with zips.open_zip(path) as archive:
        if _CONFIG not in archive.namelist():
            raise Unreadable(f"it contains no {_CONFIG}")
        zips.check_zip(archive)


def keras_epoch(path: Path) -> int:
    """Return the epoch in ``training_metadata.json``, a file of BackupAndRestore. Raises Unreadable, OSError."""
    found: Any = json_object(path, _MOST_KERAS_BYTES).get("epoch")
    if not is_count(found):
        raise Unreadable("it contains no epoch")
    return int(found)
