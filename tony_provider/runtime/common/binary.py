"""Variable-length integers (LEB128), as in protobuf, Thrift and LevelDB, fields of protobuf messages, and CRC-32C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

_LONGEST = 10  # bytes, enough for 64 bits


class EndlessNumber(ValueError):  # noqa: N818 - says what was found
    """Encoded number with more bytes than any 64-bit number needs."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number that starts at a position, and the position after it.

    Raises IndexError if the data end within the number, and EndlessNumber.
    """
    number = 0
    for shift in range(0, 7 * _LONGEST, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise EndlessNumber("a number that does not end")


class InvalidMessage(ValueError):  # noqa: N818 - says what was found
    """The bytes are not a protobuf message."""


def message_fields(message: bytes) -> Iterator[tuple[int, Union[int, bytes]]]:
    """Yield the number and value of each field: varints as integers, other values as bytes. Raises InvalidMessage."""
    at, end = 0, len(message)
    while at < end:
        key, at = _message_varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _message_varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _message_varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise InvalidMessage(f"a field has the unknown wire type {kind}")
        if at + length > end:
            raise InvalidMessage("a field ends after the end of its message")
        yield key >> 3, message[at : at + length]
        at += length


def _message_varint(message: bytes, at: int) -> tuple[int, int]:
    try:
        value, at = read_varint(message, at)
    except (IndexError, EndlessNumber) as error:
        raise InvalidMessage("a number has no end") from error
    return value & ((1 << 64) - 1), at


def encode_varint(value: int) -> bytes:
    """Encode an unsigned number in the form that ``read_varint`` reads."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _make_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _make_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of ``data``."""
    table = _TABLE
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked_crc32c(crc: int) -> int:
    """Mask a CRC-32C as LevelDB and TensorFlow do before they write it to a file."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
