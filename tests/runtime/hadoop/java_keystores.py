"""Keystores of type JKS, as Java writes them."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence

from tony_provider.runtime.hadoop.java_keystore import KeyEntry

SUN = bytes.fromhex("300e060a2b060104012a021101010500")  # its own way to protect keys


def keystore(
    password: str, keys: Sequence[KeyEntry] = (), trusted: Sequence[bytes] = (), *, algorithm: bytes = SUN
) -> bytes:
    secret = password.encode("utf-16-be")
    body = struct.pack(">III", 0xFEEDFEED, 2, len(keys) + len(trusted))
    for entry in keys:
        body += struct.pack(">I", 1) + _text(entry.alias) + bytes(8)
        body += _counted(_der(0x30, algorithm + _der(0x04, _protected(entry.key, secret))))
        body += struct.pack(">I", len(entry.chain)) + b"".join(map(_certificate, entry.chain))
    for number, certificate in enumerate(trusted):
        body += struct.pack(">I", 2) + _text(f"trusted-{number}") + bytes(8) + _certificate(certificate)
    return body + digest(body, password)


def digest(body: bytes, password: str) -> bytes:
    """What stands at the end of a keystore."""
    return hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _protected(key: bytes, secret: bytes) -> bytes:
    salt = last = os.urandom(20)
    stream = b""
    while len(stream) < len(key):
        last = hashlib.sha1(secret + last).digest()
        stream += last
    return salt + bytes(a ^ b for a, b in zip(key, stream, strict=False)) + hashlib.sha1(secret + key).digest()


def _certificate(der: bytes) -> bytes:
    return _text("X.509") + _counted(der)


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x84" + struct.pack(">I", size)
    return bytes([tag]) + length + content
