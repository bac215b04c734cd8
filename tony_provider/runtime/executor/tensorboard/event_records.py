"""What stands in event files: records in TFRecord's frames, each an ``Event`` of protobuf, read for its scalars alone.

The few fields that say them are read by hand, since programs write them with TensorFlow or PyTorch, and a node need
have neither. A scalar is a ``simple_value``, as PyTorch writes it, or a tensor of one number that belongs to
TensorBoard's plugin ``scalars``, as TensorFlow 2 does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Union

import attrs

from tony_provider.runtime.checkpoint.content import crc32c
from tony_provider.runtime.varint import EndlessNumber, read_varint

HEADER = 12  # bytes before a record: its length, and a checksum of that
FOOTER = 4  # bytes after it: a checksum of the record, which takes Python too long to look at
_PLUGIN = b"scalars"
_NUMBERS = {1: ("<f", 5), 2: ("<d", 6)}  # by data type: how tensor_content has it, and the field of its own

Field = Union[int, bytes]


class NotAnEventError(Exception):
    """The bytes are none of an event file."""


@attrs.frozen
class Scalar:
    """One point of a curve."""

    step: int
    tag: str
    value: float
    of_plugin: bool  # whether it says itself that it is one of the plugin's


def length_of(header: bytes) -> int:
    """The bytes of the record behind a header. Raises NotAnEventError."""
    length, checksum = struct.unpack("<QI", header)
    if crc32c.masked(crc32c.crc32c(header[:8])) != checksum:
        raise NotAnEventError("the checksum of a record's length is not right")
    return int(length)


def scalars(record: bytes) -> Iterator[Scalar]:
    """The scalars of an ``Event``, and other tensors of one number. Raises NotAnEventError."""
    step = 0
    summaries = []
    for number, value in _fields(record):
        if number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                yield from _scalar(step, value)


def _scalar(step: int, data: bytes) -> Iterator[Scalar]:
    """From a ``Summary.Value``."""
    tag, plain, tensor, plugin = b"", None, None, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            (plain,) = struct.unpack("<f", value)
        elif number == 8 and isinstance(value, bytes):
            tensor = value
        elif number == 9 and isinstance(value, bytes):
            plugin = _within(_within(value, 1), 1)  # SummaryMetadata.plugin_data.plugin_name
    found = plain if tensor is None else _one_number(tensor)
    if found is not None and tag:
        yield Scalar(step, tag.decode("utf-8", "replace"), found, of_plugin=plain is not None or plugin == _PLUGIN)


def _one_number(tensor: bytes) -> Union[float, None]:
    """That of a ``TensorProto`` of one float or double."""
    fields = dict(_fields(tensor))
    kind = fields.get(1)
    if not isinstance(kind, int) or kind not in _NUMBERS:
        return None
    form, own_field = _NUMBERS[kind]
    for data in (fields.get(4), fields.get(own_field)):
        if isinstance(data, bytes) and len(data) == struct.calcsize(form):
            return float(struct.unpack(form, data)[0])
    return None


def _within(message: bytes, wanted: int) -> bytes:
    """A field of bytes; empty where there is none."""
    return next((value for number, value in _fields(message) if number == wanted and isinstance(value, bytes)), b"")


def _fields(message: bytes) -> Iterator[tuple[int, Field]]:
    """Number and value of each: whole numbers as such, all else as its bytes. Raises NotAnEventError."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise NotAnEventError(f"a field is of the unknown kind {kind}")
        if at + length > end:
            raise NotAnEventError("a field ends behind its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends."""
    try:
        value, at = read_varint(message, at)
    except (IndexError, EndlessNumber) as error:
        raise NotAnEventError("a number does not end") from error
    return value & ((1 << 64) - 1), at
