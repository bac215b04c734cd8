"""Whose processes listen on a port of this machine: on the loopback any user may be there first."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

_TABLES = ("tcp", "tcp6")  # a server on every address of both kinds is in the second only
_LOCAL, _STATE, _USER = 1, 3, 7  # columns of proc_net_tcp(5)
_LISTENING = "0A"
# Words of addresses as the kernel writes them, in this machine's byte order.
_WORD = 4  # bytes
_EVERY = "00000000"
_MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address, as an IPv6 one


def listening_users(port: int, host: str = "127.0.0.1", proc: Path = Path("/proc")) -> set[int]:
    """The numbers of the users whose sockets listen on this TCP port of an IP address; empty: none does.

    Who listens on another address of this machine is nobody whom a connection to this one could meet. Blocks. Raises
    OSError.
    """
    if ":" in host:
        addresses = {_words(socket.inet_pton(socket.AF_INET6, host.partition("%")[0])), _EVERY * 4}
    else:
        own = socket.inet_aton(host)
        addresses = {_words(own), _EVERY, _EVERY * 4, _words(_MAPPED + own)}
    places = {f"{each}:{port:04X}" for each in addresses}
    return {user for table in _TABLES for user in _listening(proc / "net" / table, places)}


def _words(address: bytes) -> str:
    parts = (address[at : at + _WORD] for at in range(0, len(address), _WORD))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


def _listening(table: Path, places: set[str]) -> list[int]:
    if not table.exists():  # IPv6 may be off
        return []
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    return [int(row[_USER]) for row in rows if row[_STATE] == _LISTENING and row[_LOCAL] in places]
