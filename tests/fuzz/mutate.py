"""Inputs grown from valid ones: bytes, numbers and pieces changed, by chance that a seed repeats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

_MOST = 64 << 10  # bytes that an input is grown to
_NUMBER = re.compile(rb"[0-9]+")
_NASTY = (
    *(b"", b"\0", b"\xff" * 8, b"\x80" * 12, b"-1", b"1e999999", b"9" * 5000, b"NaN", b"null", b"true", b"[]", b"{}"),
    *(b'""', b"[" * 2000, b'{"a":' * 2000, b'"\\ud800"', b"\xed\xa0\x80", b"\x1b]0;x\x07", b"\xe2\x80\xae", b"../"),
    *(b"/", b"\n", b",", b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"2\x86" * 64),
    *((2**62).to_bytes(8, "little"), (2**63).to_bytes(8, "little")),
)


def grown(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed one to eight times."""
    data = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4, 8))):
        data = random.choice(_CHANGES)(random, data, seeds)[:_MOST]
    return data


def _flip(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _set(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + data[at + 1 :]


def _nasty(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_NASTY) + data[at + random.choice((0, 0, 1, 2, 4, 8)) :]


def _number(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Another number in place of one that is written in digits."""
    found = list(_NUMBER.finditer(data[:4096]))
    if not found:
        return _nasty(random, data, _)
    start, end = random.choice(found).span()
    return data[:start] + random.choice(_NASTY) + data[end:]


def _cut(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    return data[:start] + data[end:] if random.random() < 0.7 else data[:start]


def _double(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    piece = data[start : min(end, start + 256)]
    return data[:start] + piece * random.choice((2, 3, 50)) + data[start:]


def _splice(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


_CHANGES = (_flip, _flip, _set, _set, _nasty, _nasty, _number, _cut, _double, _splice)
