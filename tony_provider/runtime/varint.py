"""Numbers of as few bytes as they need (LEB128), as protobuf, Thrift's compact protocol and LevelDB have them."""

from __future__ import annotations

_LONGEST = 10  # bytes, which hold 64 bits


class EndlessNumber(ValueError):  # noqa: N818 - says what was found
    """A number takes more bytes than any of 64 bits."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number that begins at a position, and the position behind it.

    Raises IndexError where the data end before it does, EndlessNumber.
    """
    number = 0
    for shift in range(0, 7 * _LONGEST, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise EndlessNumber("a number without an end")
