"""Preflight: checks of a container's node and network before its user processes start.

In the network check, each rank of the job sends a message to following ranks on other hosts. A node is faulty if its
rank reaches none of these ranks, or if no preceding rank reaches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Callable, Optional, cast

import attrs

from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.concurrency import Cancelled, run_in_threads, wait_with_timeout
from tony_provider.runtime.common.quantities import size, some
from tony_provider.runtime.executor.gpus import Nvml, NvmlError, OwnGpusUnknownError, container_gpus
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.frameworks.base import PREFLIGHT_PORT, TaskAddress
from tony_provider.runtime.jobspec.model import ranks

log = logging.getLogger(__name__)


class UnfitNodeError(Exception):
    """A check has failed, so the task should move to another node. The message is the finding."""


def check_node(context: ExecutorContext, cancelled: threading.Event) -> None:
    """Check the disk, memory, clock and GPUs of the container's node. Blocks. Raises UnfitNodeError, Cancelled."""
    container = context.container
    checks: list[Callable[[], Iterator[str]]] = [
        partial(disk_problems, context.workspace.root),
        partial(memory_problems, container.spec.memory),
        clock_problems,
    ]
    if container.spec.gpus:
        names = container_gpus(container.environ, context.gpus)
        checks.append(partial(gpu_problems, names or [], container.spec.gpus))
    if found := run_checks(_NODE_SECONDS, checks, cancelled):
        raise UnfitNodeError("; ".join(found))


_NODE_SECONDS = 60.0
_POLL = 0.05  # seconds


def run_checks(seconds: float, checks: Sequence[Callable[[], Iterator[str]]], cancelled: threading.Event) -> list[str]:
    """Return the findings of all checks, or one finding if they do not end in time. Blocks. Raises Cancelled.

    The checks run in a separate thread, because a broken disk or driver makes calls hang. A check that cannot be made
    is logged.
    """
    found: list[str] = []

    def run() -> None:
        for check in checks:
            try:
                found.extend(check())
            except Exception:
                log.exception("a check of the node raised an error")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        if cancelled.is_set():
            raise Cancelled(_STOPPED)
        thread.join(_POLL)
    return [f"its disk or GPU driver does not answer within {seconds:g} s"] if thread.is_alive() else found


_LEAST_FREE = 512 << 20  # bytes on the disk of the working directory
_LEAST_INODES = 1000
_TEST_FILE_BYTES = 1 << 20  # bytes


def disk_problems(directory: Path) -> Iterator[str]:
    """Yield problems of the disk with this directory: too little space, or an error when a file is written."""
    file = directory / ".preflight"
    try:
        free = os.statvfs(directory)
        if (space := free.f_bavail * free.f_frsize) < _LEAST_FREE:
            yield f"its disk has {size(space)} free, less than {size(_LEAST_FREE)} ({directory})"
        if free.f_files and free.f_favail < _LEAST_INODES:  # 0 files: the file system has no limit
            yield f"its disk has room for only {free.f_favail} more files ({directory})"
        with file.open("wb") as output:
            output.write(bytes(_TEST_FILE_BYTES))
            output.flush()
            os.fsync(output.fileno())
    except OSError as error:
        yield f"its disk does not store a file: {error}"
    with contextlib.suppress(OSError):
        file.unlink()


_LEAST_SHARE = 0.5  # of the container's memory; less means that other processes use memory which YARN has promised
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)


def memory_problems(container_mib: int, meminfo: Path = Path("/proc/meminfo")) -> Iterator[str]:
    """Yield a problem if the node has less available memory than half of the container's memory."""
    match = _AVAILABLE.search(meminfo.read_text())
    if match and int(match[1]) << 10 < _LEAST_SHARE * (container_mib << 20):
        yield f"its available memory is {size(int(match[1]) << 10)}, for a container of {size(container_mib << 20)}"


def clock_problems() -> Iterator[str]:
    """Yield a problem if the node's clock differs from the job's clock by more than ``limits.CLOCKS_DIFFER``."""
    if ahead := -clock.correction():
        yield f"its clock is {clock.difference(ahead)} the clock of the job"


def gpu_problems(
    names: Sequence[str], wanted: int, nvml: Callable[..., Nvml] = Nvml, kernel_log: Path = Path("/dev/kmsg")
) -> Iterator[str]:
    """Yield problems of the container's GPUs: missing GPUs, damaged memory, and recent errors of the hardware.

    Reads the kernel's log, which many nodes hide from users, and NVML.
    """
    try:
        gpus = nvml(names, wanted)
        yield from gpus.faults()
        yield from _hardware_errors(gpus.addresses(), kernel_log)
    except OwnGpusUnknownError as error:
        log.info("skipping the GPU checks: %s", error)
    except NvmlError as error:
        yield f"its GPUs cannot be used: {error}"


_RECENT = 3600.0  # seconds
_RECORD_BYTES = 8192  # maximum size of a record
# XID codes of hardware errors. Programs cause most other XID errors. Source: NVIDIA's document "XID Errors".
_HARDWARE_XIDS = frozenset({48, 64, 74, 79, 95, 119, 120, 140, 143})
_XID = re.compile(rb"\d+,\d+,(\d+),[^;]*;NVRM: Xid \(PCI:([0-9a-f:]+)[^)]*\): (\d+),")


def _hardware_errors(addresses: Collection[str], kernel_log: Path) -> Iterator[str]:
    """Yield the newest XID error that NVIDIA's driver has reported for these GPUs within an hour."""
    newest: deque[str] = deque(maxlen=1)
    with contextlib.suppress(OSError):
        file = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while record := _next_record(file):
                newest.extend(_recent_error(record, addresses))
        finally:
            os.close(file)
    yield from newest


def _next_record(file: int) -> bytes:
    while True:
        try:
            return os.read(file, _RECORD_BYTES)
        except BrokenPipeError:  # the kernel has overwritten the next record
            continue


def _recent_error(record: bytes, addresses: Collection[str]) -> Iterator[str]:
    match = _XID.match(record)
    if match is None or int(match[3]) not in _HARDWARE_XIDS or match[2].decode() not in addresses:
        return
    if time.clock_gettime(time.CLOCK_MONOTONIC) - int(match[1]) / 1e6 < _RECENT:
        yield f"its GPU {match[2].decode()} had XID error {int(match[3])}"


_PEERS = 3  # number of tasks, on different hosts, to which each task sends a message
_RING_SECONDS = 120.0  # tasks arrive at different times, because some wait for GPUs
_DNS_SECONDS = 20.0
_CALL_SECONDS = 5.0
_PAUSE = 0.3  # seconds between two calls to a task that does not answer
_MESSAGE = 64 << 10  # bytes; long enough for several packets of the largest size
_FEWEST_HOSTS = 3  # between two hosts, a broken path does not show which host is faulty


@attrs.frozen
class Ring:
    """The ranks of a job that check their network, from the view of one rank."""

    rank: int
    addresses: Mapping[int, TaskAddress]  # of all tasks, by rank
    name: str  # the same for all tasks of one generation, different for all others

    @classmethod
    def of(cls, context: ExecutorContext, order: StartOrder) -> Optional[Ring]:
        """Return the ring of a start, or None if the task is not in the cluster, or the cluster is on few hosts."""
        container = context.container
        rank = order.rank(container.task_type, container.index)
        found = ranks(order.cluster.tasks)
        addresses = {found[key]: each for each in order.cluster.tasks if (key := (each.type, each.index)) in found}
        hosts = {address.host for address in addresses.values()}
        name = f"{contract.NAMESPACE} {container.identity.application_id} {order.generation}"
        return cls(rank, addresses, name) if rank is not None and len(hosts) >= _FEWEST_HOSTS else None

    def following(self, rank: int) -> list[int]:
        """Return the ranks to which ``rank`` sends messages: the next ones on other hosts, one on each host."""
        found: dict[str, int] = {}
        for step in range(1, len(self.addresses)):
            other = (rank + step) % len(self.addresses)
            if (host := self.addresses[other].host) != self.addresses[rank].host:
                found.setdefault(host, other)
            if len(found) == _PEERS:
                break
        return list(found.values())

    def message(self, rank: int) -> bytes:
        """Return the message from ``rank``."""
        return f"{self.name} {rank}\n".encode().ljust(_MESSAGE, b".")

    def describe(self, rank: int) -> str:
        address = self.addresses[rank]
        return f"{address.type}:{address.index} on {address.host}"


def check_network(ring: Ring, ports: HeldPorts, cancelled: threading.Event, seconds: float = _RING_SECONDS) -> None:
    """Exchange messages with tasks on other hosts. Blocks. Raises UnfitNodeError, PortError, OSError, Cancelled.

    A task that this task does not reach is only logged, because that task finds out itself whether it is cut off.
    """
    targets = _resolved(ring, cancelled)
    callers = {rank for rank in ring.addresses if ring.rank in ring.following(rank)}
    exchange = _Exchange(ring, targets, callers)
    with ports.listening(PREFLIGHT_PORT) as listener:
        asyncio.run(exchange.run(listener, cancelled, seconds))
    if cancelled.is_set():
        raise Cancelled(_STOPPED)
    if targets and not exchange.reached:
        raise UnfitNodeError(f"it did not reach {some(exchange.unreached())}")
    if callers and not exchange.reached_by:
        raise UnfitNodeError(f"it received no message from {some(map(ring.describe, sorted(callers)))}")
    if missing := exchange.unreached():
        log.warning("the network check did not reach %s", some(missing))


_STOPPED = "stopped during the preflight"


def _resolved(ring: Ring, cancelled: threading.Event) -> dict[int, tuple[str, int]]:
    """Return the IPv4 addresses of the ranks to call. Leave out hosts whose names cannot be resolved.

    DNS has its own time limit, because its failure is usually not a fault of the node.
    """

    def resolve(address: TaskAddress) -> tuple[str, int]:
        found = socket.getaddrinfo(address.host, address.ports[PREFLIGHT_PORT], socket.AF_INET, socket.SOCK_STREAM)
        return cast("tuple[str, int]", found[0][4])

    wanted = ring.following(ring.rank)
    resolving = run_in_threads([partial(resolve, ring.addresses[rank]) for rank in wanted], _DNS_SECONDS, "dns")
    if cancelled.is_set():
        raise Cancelled(_STOPPED)
    for rank, work in zip(wanted, resolving):
        if not work.done() or work.exception():
            log.warning("the network check skips %s: its host name cannot be resolved", ring.describe(rank))
    return {rank: work.result() for rank, work in zip(wanted, resolving) if work.done() and not work.exception()}


class _Exchange:
    """The messages of one task: which ranks it has reached, and which ranks have reached it."""

    def __init__(self, ring: Ring, targets: Mapping[int, tuple[str, int]], callers: Set[int]) -> None:
        """``targets``: addresses of the ranks to call. ``callers``: ranks that call this task."""
        self._ring = ring
        self._targets = targets
        self._callers = callers
        self._errors = dict.fromkeys(targets, "no call ended")
        self._tasks: list[asyncio.Future[None]] = []
        self.reached: set[int] = set()
        self.reached_by: set[int] = set()

    async def run(self, listener: socket.socket, cancelled: threading.Event, seconds: float) -> None:
        """Exchange messages until all ranks have answered, or until a deadline or a request to stop."""
        deadline = time.monotonic() + seconds
        server = await asyncio.start_server(self._accept, sock=listener, limit=_MESSAGE)
        self._tasks += [asyncio.ensure_future(self._call(rank)) for rank in self._targets]
        try:
            while not (self.reached.issuperset(self._targets) and self.reached_by.issuperset(self._callers)):
                if cancelled.is_set() or time.monotonic() >= deadline:
                    return
                await asyncio.sleep(_POLL)
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, rank: int) -> None:
        while rank not in self.reached:
            try:
                await wait_with_timeout(self._call_once(rank), _CALL_SECONDS)
            except asyncio.TimeoutError:
                self._errors[rank] = f"no answer within {_CALL_SECONDS:g} s"
            except (OSError, EOFError) as error:
                self._errors[rank] = str(error)
            await asyncio.sleep(_PAUSE)

    async def _call_once(self, rank: int) -> None:
        reader, writer = await asyncio.open_connection(*self._targets[rank], limit=_MESSAGE)
        with contextlib.closing(writer):
            writer.write(self._ring.message(self._ring.rank))
            await writer.drain()
            if await reader.readexactly(_MESSAGE) == self._ring.message(rank):
                self.reached.add(rank)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Reset the connection when it is closed, so that it does not keep the port in use.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._tasks.append(asyncio.ensure_future(self._answer(reader, writer)))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
            received = await wait_with_timeout(reader.readexactly(_MESSAGE), _CALL_SECONDS)
            senders = [rank for rank in self._callers if received == self._ring.message(rank)]
            if senders:
                writer.write(self._ring.message(self._ring.rank))
                await wait_with_timeout(writer.drain(), _CALL_SECONDS)
            # The other end closes the connection when it has the whole answer.
            await wait_with_timeout(reader.read(), _CALL_SECONDS)
            self.reached_by.update(senders)

    def unreached(self) -> list[str]:
        """Return the ranks that this rank did not reach, each with its host and the last error."""
        missing = [rank for rank in self._targets if rank not in self.reached]
        return [f"{self._ring.describe(rank)} ({self._errors[rank]})" for rank in missing]
