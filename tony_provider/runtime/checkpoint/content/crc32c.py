"""CRC-32C (Castagnoli), as in TensorFlow's files. It processes about 10 MB/s, so use it for indexes, not for data."""

from __future__ import annotations


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


def masked(crc: int) -> int:
    """Return the form in which files of LevelDB and TensorFlow store a checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
