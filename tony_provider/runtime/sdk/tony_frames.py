"""Messages between two processes of a job that know one secret: each proves it, and nobody between them can change one.

Both ends send a nonce; every message then has an HMAC of the secret, both nonces, its sender, its number and its text.
They are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from typing import Any

_NONCE = 32  # bytes
_LENGTH = struct.Struct(">I")
_LARGEST = 1 << 20  # bytes of a message


class NotAuthenticError(ConnectionError):
    """The other end does not know the secret, or somebody between has changed a message."""


class Frames:
    """A connection on which both ends have sent their nonce. One thread may send, another one receive."""

    def __init__(self, connection: socket.socket, secret: bytes, *, server: bool) -> None:
        """Raises OSError, NotAuthenticError."""
        self._connection = connection
        own = os.urandom(_NONCE)
        connection.sendall(own)
        other = self._exactly(_NONCE)
        nonces = own + other if server else other + own
        self._key = hmac.new(secret, b"tony-frames" + nonces, hashlib.sha256).digest()
        self._names = (b"server", b"client") if server else (b"client", b"server")  # this end, the other
        self._sent = self._received = 0

    def send(self, message: dict[str, Any]) -> None:
        """Raises OSError."""
        body = json.dumps(message).encode()
        proof = self._proof(self._names[0], self._sent, body)
        self._sent += 1
        self._connection.sendall(_LENGTH.pack(len(body)) + proof + body)

    def receive(self) -> dict[str, Any]:
        """The next message. Raises EOFError at the end, OSError, NotAuthenticError."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _LARGEST:
            raise NotAuthenticError("a message is too long")
        proof = self._exactly(hashlib.sha256().digest_size)
        body = self._exactly(length)
        if not hmac.compare_digest(proof, self._proof(self._names[1], self._received, body)):
            raise NotAuthenticError("a message does not prove to come from this job")
        self._received += 1
        message: dict[str, Any] = json.loads(body)
        return message

    def _proof(self, sender: bytes, number: int, body: bytes) -> bytes:
        return hmac.new(self._key, sender + number.to_bytes(8, "big") + body, hashlib.sha256).digest()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._connection.recv(count - len(parts))
            if not part:
                raise EOFError("the other end has closed the connection")
            parts += part
        return bytes(parts)
