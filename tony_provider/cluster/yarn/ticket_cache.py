"""Until when the worker's Kerberos ticket can be renewed, which GSSAPI does not tell: read from its file.

Format: https://web.mit.edu/kerberos/krb5-latest/doc/formats/ccache_file_format.html, version 4, which MIT and Heimdal
write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import attrs

_VERSION = 0x0504
_RENEWABLE = 0x00800000
_GRANTING = b"krbtgt"
_MOST_BYTES = 1 << 20


@attrs.frozen
class GrantingTicket:
    """The ticket that others are got by. Times are epoch seconds."""

    until: int
    renewable_until: int  # the same, where it cannot be renewed

    @classmethod
    def read(cls, cache: str) -> GrantingTicket | None:
        """The one in a cache, such as ``FILE:/tmp/krb5cc_1000``; None where that is no file, or holds none."""
        kind, _, path = cache.rpartition(":")
        if kind not in ("", "FILE"):
            return None
        try:
            with Path(path).open("rb") as file:
                return next(_granting(_Reader(file.read(_MOST_BYTES))), None)
        except (OSError, struct.error):
            return None


def _granting(reader: _Reader) -> Iterator[GrantingTicket]:
    if reader.number("H") != _VERSION:
        return
    reader.take(reader.number("H"))
    reader.principal()
    while reader.left:
        reader.principal()  # whose it is
        service = reader.principal()
        reader.number("H")
        reader.data()  # the key
        _, _, end, renew_till = (reader.number("I") for _ in range(4))
        reader.take(1)
        flags = reader.number("I")
        for _ in range(2):  # addresses, authorisation data
            for _ in range(reader.number("I")):
                reader.number("H")
                reader.data()
        reader.data()
        reader.data()  # the ticket, and a second one
        if service[:1] == [_GRANTING]:
            yield GrantingTicket(end, max(end, renew_till) if flags & _RENEWABLE else end)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        """Raises struct.error where the file ends before."""
        if size > self.left:
            raise struct.error("the file is cut off")
        self._at += size
        return self._content[self._at - size : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))[0])

    def data(self) -> bytes:
        return self.take(self.number("I"))

    def principal(self) -> list[bytes]:
        """Its components, without the realm."""
        self.number("I")
        count = self.number("I")
        self.data()
        return [self.data() for _ in range(min(count, self.left))]
