"""TCP connections of other processes: who is connected to what, and how to have all their packets vanish."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.hadoop.processes import Process

_ESTABLISHED, _LISTENING = "01", "0A"  # include/net/tcp_states.h
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # asm-generic/socket.h
_PIDFD_GETFD = 438  # the same on every architecture
_BPF_RETURN = 0x06  # BPF_RET | BPF_K: keep this many bytes of a packet


@dataclass(frozen=True)
class Connection:
    """One end of it, or a listening socket."""

    owner: Process
    descriptor: int
    state: str
    local: tuple[str, int]
    remote: tuple[str, int]


def connections(process: Process) -> list[Connection]:
    """Of this process: established ones, and sockets that it listens on."""
    descriptors = {}
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            descriptors[str(path.readlink())] = int(path.name)
        except FileNotFoundError:
            continue  # closed meanwhile
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            descriptor = descriptors.get(f"socket:[{fields[9]}]")
            if descriptor is not None and fields[3] in (_ESTABLISHED, _LISTENING):
                found.append(Connection(process, descriptor, fields[3], _address(fields[1]), _address(fields[2])))
    return found


@contextmanager
def cut_off(client: Process, server: Process) -> Iterator[None]:
    """Meanwhile no packet of ``client`` reaches ``server``, nor the other way round; nobody is told.

    A filter on the ends of their connections drops what comes in, and one on the server's listening sockets all new
    connections, those of others too. Needs the right to trace both processes.
    """
    ports = {each.local[1] for each in connections(server) if each.state == _LISTENING}
    client_ends = [each for each in connections(client) if each.remote[1] in ports]
    assert client_ends, "they are not connected"
    remotes = {each.local for each in client_ends}
    server_ends = [
        each for each in connections(server) if each.remote in remotes or (each.state, each.local[1]) in _open(ports)
    ]
    with ExitStack() as held:
        for each in [*server_ends, *client_ends]:
            held.enter_context(_deaf(each))
        yield


def _open(ports: set[int]) -> set[tuple[str, int]]:
    return {(_LISTENING, port) for port in ports}


@contextmanager
def _deaf(connection: Connection) -> Iterator[None]:
    program = ctypes.create_string_buffer(struct.pack("=HBBI", _BPF_RETURN, 0, 0, 0))
    described = struct.pack("@HP", 1, ctypes.addressof(program))
    with socket.socket(fileno=_borrow(connection)) as end:
        end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
        try:
            yield
        finally:
            end.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def _borrow(connection: Connection) -> int:
    """A descriptor of our own for another process's socket."""
    handle = os.pidfd_open(connection.owner.pid)
    try:
        descriptor = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, handle, connection.descriptor, 0)
    finally:
        os.close(handle)
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the socket of process {connection.owner.pid} cannot be had: {os.strerror(error)}")
    return int(descriptor)


def _address(text: str) -> tuple[str, int]:
    """Of /proc/net/tcp: hexadecimal words in the machine's byte order; addresses of IPv4 also where they are mapped."""
    address, _, port = text.partition(":")
    words = [struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8)]
    packed = b"".join(words)
    if len(packed) == 16 and packed[:12] == b"\0" * 10 + b"\xff\xff":
        packed = packed[12:]
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)
