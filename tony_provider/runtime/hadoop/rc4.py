"""The RC4 stream cipher, which DIGEST-MD5's privacy needs and Python's standard library lacks.

It is weak by today's measure; it is used only where a Hadoop cluster asks for ``hadoop.rpc.protection=privacy`` over
SASL, which knows nothing better.
"""

from __future__ import annotations


class Rc4:
    """One direction of one connection: the key stream goes on from call to call."""

    def __init__(self, key: bytes) -> None:
        state = list(range(256))
        j = 0
        for i in range(256):
            j = (j + state[i] + key[i % len(key)]) & 0xFF
            state[i], state[j] = state[j], state[i]
        self._state = state
        self._i = 0
        self._j = 0

    def apply(self, data: bytes) -> bytes:
        """Encrypts or decrypts, which are the same."""
        state, i, j = self._state, self._i, self._j
        stream = bytearray(len(data))
        for position in range(len(data)):
            i = (i + 1) & 0xFF
            a = state[i]
            j = (j + a) & 0xFF
            b = state[j]
            state[i] = b
            state[j] = a
            stream[position] = state[(a + b) & 0xFF]
        self._i, self._j = i, j
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(data), "big")
