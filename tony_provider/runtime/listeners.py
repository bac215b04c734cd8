"""Whose processes listen on a port of this machine: on the loopback any user may be there first."""

from __future__ import annotations

from pathlib import Path

_TABLES = ("tcp", "tcp6")  # a server on every address of both kinds is in the second only
_LOCAL, _STATE, _USER = 1, 3, 7  # columns of proc_net_tcp(5)
_LISTENING = "0A"


def listening_users(port: int, proc: Path = Path("/proc")) -> set[int]:
    """The numbers of the users whose sockets listen on this TCP port; empty: none does. Blocks. Raises OSError."""
    return {user for table in _TABLES for user in _listening(proc / "net" / table, f":{port:04X}")}


def _listening(table: Path, end: str) -> list[int]:
    if not table.exists():  # IPv6 may be off
        return []
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    return [int(row[_USER]) for row in rows if row[_STATE] == _LISTENING and row[_LOCAL].endswith(end)]
