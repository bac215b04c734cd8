"""The part of Hadoop's Writable encoding that tokens use: vlong, vint, byte arrays, Text.

From org.apache.hadoop.io.WritableUtils: a value in -112..127 is one byte; otherwise the first byte tells sign and
length (-113..-120: 1 to 8 bytes follow; -121..-128: the same for the one's complement of a negative value), then
big-endian bytes.
"""

from __future__ import annotations

from tony_provider.runtime.hadoop.errors import CredentialsError

_INT_MAX = 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def encode_vlong(value: int) -> bytes:
    """The vlong encoding of a number. Raises ValueError when it does not fit in 64 bits."""
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise ValueError(f"{value} does not fit in a vlong")
    if -112 <= value <= 127:
        return value.to_bytes(1, "big", signed=True)
    magnitude = value if value >= 0 else ~value
    size = (magnitude.bit_length() + 7) // 8
    marker = (-112 if value >= 0 else -120) - size
    return marker.to_bytes(1, "big", signed=True) + magnitude.to_bytes(size, "big")


def encode_bytes(data: bytes) -> bytes:
    """The encoding of a byte array: its length as a vint, then the bytes."""
    return encode_vlong(len(data)) + data


def encode_text(text: str) -> bytes:
    """The encoding of a Text: UTF-8, as a byte array."""
    return encode_bytes(text.encode())


class WritableReader:
    """Reads Writable values one after the other.

    Raises CredentialsError where the bytes end early or are not such a value.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.remaining:
            raise CredentialsError(f"truncated: {count} bytes expected at {self._position}, {self.remaining} are left")
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def vlong(self) -> int:
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -112:
            return first
        if first >= -120:
            value = int.from_bytes(self.take(-112 - first), "big")
        else:
            value = ~int.from_bytes(self.take(-120 - first), "big")
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise CredentialsError(f"a vlong before byte {self._position} does not fit in 64 bits")
        return value

    def count(self) -> int:
        """A vint that says how many bytes or things follow."""
        value = self.vlong()
        if not 0 <= value <= _INT_MAX:
            raise CredentialsError(f"{value} before byte {self._position} is no length")
        return value

    def bytes(self) -> bytes:
        return self.take(self.count())

    def text(self) -> str:
        data = self.bytes()
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CredentialsError(f"a text before byte {self._position} is not UTF-8") from error
