"""Limits for executors: message sizes, message rates, and connections to the executors' port.

Messages are cut to the limits of ``protocol.limits``. Control characters and invisible characters are removed from
texts here, before the texts reach the log, the history and the job page.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from typing import Any, Callable, Optional, Union
from urllib.parse import unquote

import attrs
from google.protobuf.message import DecodeError, Message

from tony_provider.runtime.common.binary import EndlessNumber, read_varint
from tony_provider.runtime.common.concurrency import loop_time
from tony_provider.runtime.common.network import HIGHEST_PORT, canonical_host
from tony_provider.runtime.common.text import one_line, printable
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.limits import RESERVED_KEYS

log = logging.getLogger(__name__)


_KINDS = {field.number: field.name for field in tony_pb2.FromExecutor.DESCRIPTOR.fields}
_PASSED_ON = ("tail", "page", "last_words", "tunnel")  # kinds whose content the application master only forwards
_LENGTH_DELIMITED = 2  # wire type of protobuf
_LONGEST_HOST = 255


@attrs.frozen
class RefusedMessage:
    """An incoming message that was rejected, with the reason."""

    why: str
    size: int  # bytes


@attrs.frozen
class AcceptedMessage:
    """An incoming message within its size limit."""

    message: tony_pb2.FromExecutor
    kind: str
    size: int  # bytes


Incoming = Union[AcceptedMessage, RefusedMessage]


def parse_message(data: bytes) -> Incoming:
    """Parse a message, after checking its size. Never raises."""
    head = _head(data)
    if head is None:
        return RefusedMessage("it is not a message of this protocol", len(data))
    kind, start, length = head
    if length > limits.size_limit(kind):
        return RefusedMessage(
            f"a message of the kind {kind} has {length} bytes, limit {limits.size_limit(kind)}", len(data)
        )
    if start + length != len(data):
        return RefusedMessage("a message has more than one field", len(data))
    try:
        return AcceptedMessage(tony_pb2.FromExecutor.FromString(data), kind, len(data))
    except DecodeError:
        return RefusedMessage(f"a message of the kind {kind} cannot be read", len(data))


def registration_problem(registration: tony_pb2.Registration) -> str:
    """Return why this registration must not reach other tasks, or an empty string."""
    host = registration.host
    if not 0 < len(host) <= _LONGEST_HOST or not host.isascii() or not all(c.isalnum() or c in "._:-%" for c in host):
        return f"{host[:_LONGEST_HOST]!a} is not a valid host name"
    if len(registration.ports) > limits.MOST_PORTS:
        return f"{len(registration.ports)} ports, more than the limit of {limits.MOST_PORTS}"
    for name, port in registration.ports.items():
        if not limits.is_metric_name(name) or not 0 < port <= HIGHEST_PORT:
            return f"the name or number of the port {name[: limits.LONGEST_NAME]!a}: {port} is not valid"
    if sum(len(held.shards) for held in registration.shards) > limits.MOST_HELD_SHARDS:
        return f"its user process holds more shards than the limit of {limits.MOST_HELD_SHARDS}"
    return ""


class MessageTrimmer:
    """Cuts the messages of one executor to their limits and cleans them. ``cut``: names of the fields that were cut."""

    def __init__(self) -> None:
        self.cut: set[str] = set()

    def fit(self, taken: AcceptedMessage) -> None:
        """Cut a message in place."""
        self._fit(getattr(taken.message, taken.kind))

    def _fit(self, message: Message) -> None:
        for field, most, fit in _FITTING.get(type(message), ()):
            if value := getattr(message, field):
                fit(self, message, field, value, most)

    def _message(self, message: Message, field: str, value: Message, most: int) -> None:
        self._fit(value)

    def _entries(self, message: Message, field: str, entries: MutableSequence[Any], most: int) -> None:
        if len(entries) > most:
            del entries[most:]
            self.cut.add(field)
        for index, entry in enumerate(entries):
            if isinstance(entry, Message):
                self._fit(entry)
            elif len(entry) > limits.LONGEST_LABEL or not entry.isprintable():
                entries[index] = one_line(entry[: limits.LONGEST_LABEL])
                self.cut.add(field)

    def _bytes(self, message: Message, field: str, data: bytes, most: int) -> None:
        if len(data) > most:
            setattr(message, field, data[-most:])
            self.cut.add(field)

    def _metrics(self, message: Message, field: str, metrics: Mapping[str, Any], most: int) -> None:
        """Remove metrics or parameters with invalid names, and excess ones. They are only rebuilt if necessary."""
        if len(metrics) <= most and all(map(_is_name, metrics)):
            return
        kept = sorted(name for name in metrics if _is_name(name))[:most]
        values = {name: metrics[name] for name in kept}
        message.ClearField(field)
        getattr(message, field).update(values)
        self.cut.add(field)

    def _text(self, message: Message, field: str, text: str, most: int) -> None:
        if len(text) > most:
            text = text[-most:] if field in ("output_tail", "tail") else text[: most - 1] + "…"
            setattr(message, field, text)
            self.cut.add(field)
        if not text.isprintable():
            setattr(message, field, one_line(text) if most == limits.LONGEST_LABEL else printable(text))


Fit = Callable[[MessageTrimmer, Message, str, Any, int], None]
"""Method that cuts the value of a message's field to the limit of the field."""


def _fit_of(value: object) -> Fit:
    """Return the method that cuts a field to its limit, by the type of the field's default value."""
    if isinstance(value, str):
        return MessageTrimmer._text
    if isinstance(value, bytes):
        return MessageTrimmer._bytes
    if isinstance(value, Message):
        return MessageTrimmer._message
    return MessageTrimmer._metrics if isinstance(value, Mapping) else MessageTrimmer._entries


# Computed once, because the master of a large job receives hundreds of heartbeats a second.
_FITTING: dict[type, tuple[tuple[str, int, Fit], ...]] = {
    kind: tuple((field, most, _fit_of(getattr(kind(), field))) for field, most in fields.items())
    for name, fields in limits.FIELD_LIMITS.items()
    for kind in [getattr(tony_pb2, name)]
}


class StreamThrottle:
    """Back-pressure on one stream: delays reading from an executor that sends faster than its limit."""

    def __init__(self) -> None:
        self._messages = RateLimiter(limits.MESSAGES_A_SECOND, limits.MESSAGES_IN_ONE_GO)
        self._bytes = RateLimiter(limits.BYTES_A_SECOND, limits.BYTES_IN_ONE_GO)

    async def keep(self, incoming: Incoming) -> None:
        """Wait until the next message may be read after ``incoming``."""
        passed_on = isinstance(incoming, RefusedMessage) or incoming.kind in _PASSED_ON
        cost = incoming.size if passed_on else incoming.size * limits.COST_OF_UNDERSTANDING
        now = time.monotonic()
        wait = max(self._messages.take(1, now), self._bytes.take(cost, now))
        if wait > 0:
            await asyncio.sleep(wait)


def _is_name(text: str) -> bool:
    """Return the same as ``limits.is_metric_name``, but faster for most names. Each heartbeat contains such names."""
    if text.isprintable():
        return len(text) <= limits.LONGEST_NAME and text not in RESERVED_KEYS
    return limits.is_metric_name(text)


def _head(data: bytes) -> Optional[tuple[str, int, int]]:
    """Return name, content offset and content length of the first field, or None if the field is unknown.

    Executors send exactly one field.
    """
    tag, at = _varint(data, 0)
    length, start = _varint(data, at)
    kind = _KINDS.get(tag >> 3)
    if kind is None or tag & 7 != _LENGTH_DELIMITED or start == 0:
        return None
    return kind, start, length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and its end offset, or ``(0, 0)`` if the number is incomplete."""
    try:
        return read_varint(data, at)
    except (IndexError, EndlessNumber):
        return 0, 0


Peer = tuple[str, int]

_RARELY = 2.0  # seconds between two checks of all connections
_OFTEN = 0.05  # seconds between two checks while there are too many connections
_SILENT_LOOKS = 1  # checks after the first one until a connection without data counts as silent; executors send at once
_QUIET = 30.0  # seconds without excess connections, after which the next flood is logged again
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in Linux's tcp_info
_MOST_NUMBERS = 1 << 16  # number of descriptors to try if /dev/fd cannot be opened


def peer_of(text: str) -> Peer:
    """Parse gRPC's form of an address: ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``. Raises ValueError."""
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return canonical_host(host.strip("[]")), int(port)


@attrs.define
class AcceptedConnection:
    """An accepted connection to the executors' port."""

    descriptor: int
    inode: int
    peer: Peer
    number: int  # sequence number, in the order of detection
    looks: int = 0  # number of checks so far
    silent: bool = True  # the peer has sent nothing yet

    @property
    def worth(self) -> tuple[bool, int]:
        """Sort key within one address. Connections with a low value close first: silent ones, then old ones."""
        return not (self.silent and self.looks >= _SILENT_LOOKS), self.number


class ConnectionWatch:
    """Closes excess and unwanted connections to one port of this process.

    gRPC accepts every connection, up to a limit (``task_identity.server_options``), and cannot identify the peer before
    the TLS handshake. This class keeps a part of that limit free for executors. If there are too many
    connections, it first closes connections from addresses without any known executor.

    Callers report the start of an executor's stream on a connection with ``proven``, and its end with ``ended``. They
    request with ``shut`` that a connection is closed. ``run`` checks connections until cancelled.
    """

    def __init__(self, port: int, most: int) -> None:
        """``most``: gRPC's limit of connections to the port.

        Half of the limit that remains after the proven connections is for unproven connections. In large jobs, their
        share is larger, because all executors connect concurrently.
        """
        self._port = port
        self._most = most
        self._proven: Counter[Peer] = Counter()
        self._known: set[str] = set()
        self._unwanted: set[Peer] = set()
        self._others: dict[int, int] = {}  # inodes of all other open files, by descriptor
        self._accepted: dict[int, AcceptedConnection] = {}  # by descriptor
        self._seen = 0
        self._told_at = float("-inf")
        self._looking = threading.Lock()
        self._closed = False
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # Reserved for duplicates of descriptors, because all descriptors may be in use when a duplicate is needed.
        self._spyglass = os.dup(self._nothing)

    def close(self) -> None:
        """Wait for a running check, and close the watch. Later checks do nothing. Idempotent."""
        with self._looking:
            if self._closed:
                return
            self._closed = True
        os.close(self._spyglass)
        os.close(self._nothing)

    def proven(self, peer: str) -> None:
        """Record that a connection carries an executor's stream. ``peer``: as formatted by gRPC."""
        address = peer_of(peer)
        self._proven[address] += 1
        self._known.add(address[0])

    def ended(self, peer: str) -> None:
        address = peer_of(peer)
        self._proven[address] -= 1
        if self._proven[address] <= 0:
            del self._proven[address]

    def shut(self, peer: str) -> None:
        """Close a connection with all its streams soon."""
        self._unwanted.add(peer_of(peer))

    async def run(self) -> None:
        """Check the connections, less often while their number is within the limit."""
        while True:
            unwanted, self._unwanted = frozenset(self._unwanted), set()
            shut = await asyncio.to_thread(self._look, frozenset(self._proven), frozenset(self._known), unwanted)
            self._tell(shut)
            await asyncio.sleep(_OFTEN if shut else _RARELY)

    def _tell(self, shut: Counter[str]) -> None:
        now = loop_time()
        if not shut:
            return
        if now - self._told_at > _QUIET:
            log.warning(
                "too many unauthenticated connections to the executors' port: closing the oldest, from %s. "
                "Further ones are closed without a log line",
                ", ".join(f"{source} ({number})" for source, number in shut.most_common(3)),
            )
        self._told_at = now

    # ---- in a thread -------------------------------------------------------------------------------------------

    def _look(self, proven: frozenset[Peer], known: frozenset[str], unwanted: frozenset[Peer]) -> Counter[str]:
        """Shut down unwanted and excess connections. Return the number of excess connections by address."""
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
        left = self._most - len(proven)
        room = max(1, left // 2, left - _NEWCOMERS // 2)
        if len(numbers) - len(proven) <= room:
            return shut
        unproven = [each for each in self._connections(numbers) if each.peer not in proven]
        excess = len(unproven) - room
        if excess > 0:
            for each in _in_order(unproven, known)[:excess]:
                if self._shut(each):
                    shut[each.peer[0]] += 1
        return shut

    def _connections(self, numbers: Iterable[int]) -> list[AcceptedConnection]:
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
                peer = seen.getpeername()  # OSError: it is a listening socket, or closed already
                self._seen += 1
                self._accepted[number] = AcceptedConnection(
                    number, inode, (canonical_host(peer[0]), peer[1]), self._seen
                )
            else:
                self._others[number] = inode
        except OSError:
            return
        finally:
            if seen is not None:
                seen.detach()

    def _listen_to(self, found: AcceptedConnection) -> None:
        seen = self._through(found.descriptor)
        if seen is None:
            return
        try:
            info = seen.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_INFO", 11), _BYTES_RECEIVED + 8)
            if len(info) == _BYTES_RECEIVED + 8:
                # A FIN of the peer also counts as a byte.
                found.silent = struct.unpack_from("@Q", info, _BYTES_RECEIVED)[0] == 0
        except OSError:
            return
        finally:
            seen.detach()

    def _shut(self, found: AcceptedConnection) -> bool:
        """Shut down a connection, so that gRPC closes it.

        The descriptor may have been reused, so check its addresses first.
        """
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
        """Return the socket of a descriptor through our own duplicate, so that reuse of ``number`` does no harm."""
        try:
            os.dup2(number, self._spyglass, inheritable=False)
            return socket.socket(fileno=self._spyglass)
        except OSError:
            return None

    def _turn_away(self) -> None:
        """Detach the duplicate, because it would keep the connection open."""
        os.dup2(self._nothing, self._spyglass, inheritable=False)


def _in_order(unproven: Iterable[AcceptedConnection], known: frozenset[str]) -> list[AcceptedConnection]:
    """Return connections in closing order: unknown addresses first, then addresses with the most connections."""
    by_source: dict[str, list[AcceptedConnection]] = {}
    for each in unproven:
        by_source.setdefault(each.peer[0], []).append(each)
    ranked: list[tuple[bool, int, AcceptedConnection]] = []
    for source, connections in by_source.items():
        connections.sort(key=lambda each: each.worth, reverse=True)
        ranked += [(source not in known, place, each) for place, each in enumerate(connections)]
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    return [each for _, _, each in ranked]


def _descriptors() -> list[int]:
    """Return the open descriptors of this process. Without a free descriptor for /dev/fd, test all possible numbers."""
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


_OTHERS = 1024  # descriptors for the listening socket, the store, the ResourceManager, nodes, visitors
_NEWCOMERS = 1024  # unproven connections to the executors' port, including those of strangers
_MOST_RESERVED = 2  # divisor: at most one half of a low limit is reserved for other descriptors


def raise_open_files_limit(tasks: int) -> None:
    """Raise the limit on open files to what this number of executors needs, within the node's hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tasks + _NEWCOMERS + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < tasks + _OTHERS:
        log.warning(
            "%d tasks need %d open files, and this node allows %d: raise its limit (ulimit -n)", tasks, wanted, allowed
        )


def executor_connection_limit(tasks: int) -> int:
    """Return the connection limit of the executors' port. It leaves enough open files for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tasks + _NEWCOMERS
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, soft - min(_OTHERS, soft // _MOST_RESERVED))


class RateLimiter:
    """A token bucket: ``rate`` per second, and up to ``in_one_go`` at once after a pause."""

    def __init__(self, rate: float, in_one_go: float) -> None:
        self._rate = rate
        self._most_ahead = in_one_go / rate  # seconds
        self._free_at = float("-inf")  # time at which the bucket has regained the amount taken so far

    def take(self, amount: float, now: float) -> float:
        """Take an amount. Return how long to wait afterwards, in seconds. ``now``: time of any monotonic clock."""
        self._free_at = max(self._free_at, now - self._most_ahead) + amount / self._rate
        return self._free_at - now

    def take_if_free(self, now: float) -> bool:
        """Take 1 if it is available without waiting. Otherwise take nothing and return False."""
        if max(self._free_at, now - self._most_ahead) + 1 / self._rate > now:
            return False
        self.take(1, now)
        return True
