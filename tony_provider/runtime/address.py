"""Network addresses."""

from __future__ import annotations

import ipaddress

import attrs

HIGHEST_PORT = 65535


@attrs.frozen(order=True)
class Address:
    """A host (name, IPv4, or IPv6 without brackets) and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address in a text, ``host:port`` or ``[IPv6]:port``. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= HIGHEST_PORT:
            raise ValueError(f"{text!r} is not host:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def canonical_host(text: str) -> str:
    """One spelling for each numeric address: IPv6 may name its interface, or hold an IPv4 address.

    Anything else stays as it is.
    """
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
