"""A watch over the connections to the executors' port: strangers, who prove nothing, do not keep executors out.

gRPC takes in every connection, and knows after the TLS handshake at the earliest who it is. So it holds a limited
number of them (``task_identity.server_options``), and this watch keeps room below that limit: it looks at this
process's own sockets, and shuts down those in excess that have proven nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import attrs

from tony_provider.runtime.address import canonical_host

log = logging.getLogger(__name__)

Peer = tuple[str, int]

_RARELY = 0.5  # seconds between two looks
_OFTEN = 0.05  # while there are too many
_SILENT_LOOKS = 1  # that have seen a connection say nothing after the first: an executor speaks first, and at once
_QUIET = 30.0  # seconds without anything in excess after which the next flood is told of again
_BYTES_RECEIVED = 128  # offset in Linux's tcp_info
_MOST_NUMBERS = 1 << 16  # of descriptors that are tried where the directory cannot be opened


def peer_of(text: str) -> Peer:
    """The address that gRPC writes as ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``. Raises ValueError."""
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return canonical_host(host.strip("[]")), int(port)


@attrs.define
class Accepted:
    """A connection to the port."""

    descriptor: int
    inode: int
    peer: Peer
    number: int  # counts the connections in the order in which they were seen
    looks: int = 0  # at it, so far
    silent: bool = True  # it has sent nothing yet

    @property
    def worth(self) -> tuple[bool, int]:
        """Of several from one address the one with the least goes first: who stays silent, then the oldest."""
        return not (self.silent and self.looks >= _SILENT_LOOKS), self.number


class ConnectionWatch:
    """The watch over one port of this process.

    ``proven`` says of a connection that an executor's stream is open on it, ``ended`` that this is over, ``shut`` that
    it is to be closed all the same; ``run`` looks until it is cancelled. Addresses from which an executor has come are
    known from then on: strangers go before them.
    """

    def __init__(self, port: int, most: int) -> None:
        """``most``: connections that the port takes in at all. Half of what the proven ones leave stays free."""
        self._port = port
        self._most = most
        self._proven: Counter[Peer] = Counter()
        self._known: set[str] = set()
        self._unwanted: set[Peer] = set()
        self._others: dict[int, int] = {}  # inodes of descriptors that are something else
        self._accepted: dict[int, Accepted] = {}  # by descriptor
        self._seen = 0
        self._told_at = float("-inf")
        self._looking = threading.Lock()
        self._closed = False
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # To look at a descriptor through: none may be missing just when all are in use.
        self._spyglass = os.dup(self._nothing)

    def close(self) -> None:
        """End it. A look that is under way in its thread comes first, or finds nothing to look through."""
        with self._looking:
            self._closed = True
        os.close(self._spyglass)
        os.close(self._nothing)

    def proven(self, peer: str) -> None:
        """An executor's stream is open on this connection, named as gRPC does."""
        address = peer_of(peer)
        self._proven[address] += 1
        self._known.add(address[0])

    def ended(self, peer: str) -> None:
        address = peer_of(peer)
        self._proven[address] -= 1
        if self._proven[address] <= 0:
            del self._proven[address]

    def shut(self, peer: str) -> None:
        """Close this connection, with all that there is on it, soon."""
        self._unwanted.add(peer_of(peer))

    async def run(self) -> None:
        """Look, rarely while all is well."""
        while True:
            unwanted, self._unwanted = frozenset(self._unwanted), set()
            shut = await asyncio.to_thread(self._look, frozenset(self._proven), frozenset(self._known), unwanted)
            self._tell(shut)
            await asyncio.sleep(_OFTEN if shut else _RARELY)

    def _tell(self, shut: Counter[str]) -> None:
        now = asyncio.get_running_loop().time()
        if not shut:
            return
        if now - self._told_at > _QUIET:
            log.warning(
                "too many connections to the executors' port have proven nothing: the oldest are closed, of %s. "
                "Further ones are closed without a word",
                ", ".join(f"{source} ({number})" for source, number in shut.most_common(3)),
            )
        self._told_at = now

    # ---- in a thread -------------------------------------------------------------------------------------------

    def _look(self, proven: frozenset[Peer], known: frozenset[str], unwanted: frozenset[Peer]) -> Counter[str]:
        """Shut down what is not wanted, and what is in excess; returns how many of each address are in excess."""
        with self._looking:
            if self._closed:
                return Counter()
            for each in self._connections(_descriptors()) if unwanted else ():
                if each.peer in unwanted:
                    self._shut(each)
            return self._shut_excess(proven, known)

    def _shut_excess(self, proven: frozenset[Peer], known: frozenset[str]) -> Counter[str]:
        shut: Counter[str] = Counter()
        numbers = _descriptors()
        room = max(1, (self._most - len(proven)) // 2)
        if len(numbers) - len(proven) <= room:
            return shut
        unproven = [each for each in self._connections(numbers) if each.peer not in proven]
        excess = len(unproven) - room
        if excess > 0:
            for each in _in_order(unproven, known)[:excess]:
                if self._shut(each):
                    shut[each.peer[0]] += 1
        return shut

    def _connections(self, numbers: Iterable[int]) -> list[Accepted]:
        before, self._accepted = self._accepted, {}
        others, self._others = self._others, {}
        for number in numbers:
            try:
                status = os.fstat(number)
            except OSError:
                continue
            found = before.get(number)
            if found is not None and found.inode == status.st_ino:
                found.looks += 1
                if found.silent:
                    self._listen_to(found)
                self._accepted[number] = found
            elif others.get(number) == status.st_ino or not stat.S_ISSOCK(status.st_mode):
                self._others[number] = status.st_ino
            else:
                self._meet(number, status.st_ino)
        self._turn_away()
        return list(self._accepted.values())

    def _meet(self, number: int, inode: int) -> None:
        seen = self._through(number)
        try:
            if seen is None or seen.type != socket.SOCK_STREAM or seen.family not in (socket.AF_INET, socket.AF_INET6):
                self._others[number] = inode
            elif seen.getsockname()[1] == self._port:
                peer = seen.getpeername()  # OSError: it listens, or is gone already
                self._seen += 1
                self._accepted[number] = Accepted(number, inode, (canonical_host(peer[0]), peer[1]), self._seen)
            else:
                self._others[number] = inode
        except OSError:
            return
        finally:
            if seen is not None:
                seen.detach()

    def _listen_to(self, found: Accepted) -> None:
        seen = self._through(found.descriptor)
        if seen is None:
            return
        try:
            info = seen.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_INFO", 11), _BYTES_RECEIVED + 8)
            if len(info) == _BYTES_RECEIVED + 8:
                # Of an end of the connection that counts as a byte, too.
                found.silent = struct.unpack_from("@Q", info, _BYTES_RECEIVED)[0] == 0
        except OSError:
            return
        finally:
            seen.detach()

    def _shut(self, found: Accepted) -> bool:
        """gRPC closes it then. The number may be another one's by now: only what it was met as is shut."""
        seen = self._through(found.descriptor)
        if seen is None:
            return False
        try:
            address = seen.getpeername()
            if (canonical_host(address[0]), address[1]) != found.peer or seen.getsockname()[1] != self._port:
                return False
            seen.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
        finally:
            seen.detach()
            self._turn_away()
        return True

    def _through(self, number: int) -> socket.socket | None:
        """The socket of a descriptor, by a descriptor of our own: whatever becomes of the other, this one is it."""
        try:
            os.dup2(number, self._spyglass, inheritable=False)
            return socket.socket(fileno=self._spyglass)
        except OSError:
            return None

    def _turn_away(self) -> None:
        """A connection that is looked at would stay open."""
        os.dup2(self._nothing, self._spyglass, inheritable=False)


def _in_order(unproven: Iterable[Accepted], known: frozenset[str]) -> list[Accepted]:
    """Who goes first: strangers, and of these who has the most connections from one address."""
    by_source: dict[str, list[Accepted]] = {}
    for each in unproven:
        by_source.setdefault(each.peer[0], []).append(each)
    ranked: list[tuple[bool, int, Accepted]] = []
    for source, connections in by_source.items():
        connections.sort(key=lambda each: each.worth, reverse=True)
        ranked += [(source not in known, place, each) for place, each in enumerate(connections)]
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    return [each for _, _, each in ranked]


def _descriptors() -> list[int]:
    """The numbers of this process's open files, or what they can be where even one more cannot be opened."""
    try:
        with os.scandir("/dev/fd") as entries:
            return [int(entry.name) for entry in entries]
    except OSError:
        return list(_open_numbers())


def _open_numbers() -> Iterator[int]:
    for number in range(min(os.sysconf("SC_OPEN_MAX"), _MOST_NUMBERS)):
        try:
            os.fstat(number)
        except OSError:
            continue
        yield number
