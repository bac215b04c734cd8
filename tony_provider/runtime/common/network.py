"""Network addresses, users of local sockets, TLS keys and titles of HTTP error pages.

Another user of this machine may already listen on a loopback port, so callers check which user is at the other end of a
connection.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import attrs

HIGHEST_PORT = 65535


@attrs.frozen(order=True)
class Address:
    """Host (name, IPv4, or IPv6 without brackets) and port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``host:port`` or ``[IPv6]:port``. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= HIGHEST_PORT:
            raise ValueError(f"{text!r} is not host:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def canonical_host(text: str) -> str:
    """Return one spelling for each numeric address: IPv6 without its interface, IPv4 for an IPv4-mapped IPv6.

    Other hosts are returned unchanged.
    """
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def web_address(text: str, examples: str) -> SplitResult:
    """Return the parts of a server's http or https URL. A path may follow the host. Raises ValueError.

    ``examples``: correct URLs, for the error message.
    """
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is not a web address; use {examples}")
    return parts


_TABLES = ("tcp", "tcp6")  # a server on all IPv4 and IPv6 addresses is only in tcp6
_LOCAL, _REMOTE, _STATE, _USER, _INODE = 1, 2, 3, 7, 9  # columns of proc_net_tcp(5)
_LISTENING = "0A"
_OPEN = ("01", "08")  # established, and closed by this side alone
_HALF = ("04", "05")  # closed by the other side, where a process may still hold the socket and read
# Words of addresses, as the kernel writes them, in this machine's byte order.
_WORD = 4  # bytes
_EVERY = "00000000"
_MAPPED = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address in IPv6 form
_LOOKS, _PAUSE = 5, 0.02  # attempts to find a new connection in a table, and seconds between them


class Connected(Protocol):
    """Connection with two addresses: a socket, or asyncio's view of a socket."""

    def getsockname(self) -> Any: ...

    def getpeername(self) -> Any: ...


@attrs.frozen
class OpenSocket:
    """An open socket of a process."""

    user: int  # number of the user who created the socket
    inode: str  # number in the links ``socket:[<inode>]`` in /proc/<pid>/fd


@attrs.frozen
class _Row:
    """A socket in the kernel's table."""

    local: str
    remote: str
    state: str
    socket: OpenSocket

    @property
    def is_taken(self) -> bool:
        """Return whether a process holds the socket. Until a server accepts the connection, no process does."""
        return self.socket.inode != "0"


def peer_users(connection: Connected, proc: Path = Path("/proc")) -> set[int]:
    """Return the numbers of the users who hold the other end of a connection. See ``peer_sockets``."""
    return {each.user for each in peer_sockets(connection, proc)}


def peer_sockets(connection: Connected, proc: Path = Path("/proc")) -> set[OpenSocket]:
    """Return the sockets at the other end of a connection within this machine; empty if no process holds that end.

    If a server has accepted the connection, this is the accepted socket. Otherwise these are all listening sockets that
    may accept the connection. Call this function before sending data. Blocks for a moment. Raises OSError.
    """
    try:
        (host, port), (own_host, own_port) = connection.getpeername()[:2], connection.getsockname()[:2]
        both = list(zip(_as_kernel(host), _as_kernel(own_host)))
    except (OSError, ValueError):  # the connection is already closed, or uses another protocol
        return set()
    ends = {(f"{theirs}:{port:04X}", f"{ours}:{own_port:04X}") for theirs, ours in both}
    for _ in range(_LOOKS):
        # List listening sockets first: a connection that is not accepted afterwards belongs to one of them.
        listening = _listening_sockets(port, host, proc)
        for row in _rows(proc):
            if (row.local, row.remote) in ends and row.is_taken and row.state in (*_OPEN, *_HALF):
                return {row.socket}
            if (row.local, row.remote) in ends and row.state in _OPEN:
                return listening
        time.sleep(_PAUSE)
    return set()


def is_of_this_machine(host: str) -> bool:
    """Return whether an IP address belongs to this machine, which means that a socket can be bound to it.

    The two addresses of a connection within a machine may differ: a connection to 127.0.1.1 comes from 127.0.0.1.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as bound:
        try:
            bound.bind((host, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _listening_sockets(port: int, host: str, proc: Path) -> set[OpenSocket]:
    every = [_EVERY * 4] if ":" in host else [_EVERY, _EVERY * 4]
    places = {f"{each}:{port:04X}" for each in [*_as_kernel(host), *every]}
    return {row.socket for row in _rows(proc) if row.state == _LISTENING and row.local in places}


def _as_kernel(host: str) -> list[str]:
    """Return an address in the form of the kernel's tables, an IPv4 address also in its IPv4-mapped IPv6 form."""
    address = ipaddress.ip_address(host.partition("%")[0]).packed
    return [_words(address)] if ":" in host else [_words(address), _words(_MAPPED + address)]


def _words(address: bytes) -> str:
    parts = (address[at : at + _WORD] for at in range(0, len(address), _WORD))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


def _rows(proc: Path) -> Iterator[_Row]:
    for name in _TABLES:
        table = proc / "net" / name
        if not table.exists():  # IPv6 may be disabled
            continue
        for line in table.read_text().splitlines()[1:]:
            row = line.split()
            yield _Row(row[_LOCAL], row[_REMOTE], row[_STATE], OpenSocket(int(row[_USER]), row[_INODE]))


def load_key(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a private key with its certificates into a context, from a temporary file that only its owner can read.

    Blocks. Raises OSError, of which ssl.SSLError is a subclass.
    """
    with tempfile.NamedTemporaryFile(dir=".", prefix=".tony-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


_LOOKED_AT = 16 << 10  # bytes; an application master may answer with a page of any length


def page_title(page: bytes) -> str:
    """Return a page's title, in which Hadoop's servers report errors, or its beginning if it has no title."""
    beginning = page[:_LOOKED_AT]
    small = beginning.lower()
    start = small.find(b"<title>") + len(b"<title>")
    end = small.find(b"</title>", start) if start >= len(b"<title>") else -1
    return (beginning[start:end] if end >= 0 else beginning).decode("utf-8", "replace")
