"""Preflight: checks of a container's node and network before its user processes start.

In the network check, each task of the cluster sends a message to the tasks with the next ranks. A task that reaches
none of them, or that none of the tasks before it reaches, is on a faulty node.
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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.concurrency import Cancelled, wait_with_timeout
from tony_provider.runtime.common.quantities import size, some
from tony_provider.runtime.executor.gpus import Nvml, NvmlError, NvmlMissingError
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.executor.start_context import ExecutorContext, StartOrder
from tony_provider.runtime.frameworks.base import MAIN_PORT, TaskAddress
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
        names = context.gpus.names if context.gpus else []
        checks += [partial(gpu_problems, names, container.spec.gpus), driver_problems]
    if found := found_within(_NODE_SECONDS, checks, cancelled):
        raise UnfitNodeError("; ".join(found))


_NODE_SECONDS = 60.0
_POLL = 0.05  # seconds


def found_within(
    seconds: float, checks: Sequence[Callable[[], Iterator[str]]], cancelled: threading.Event
) -> list[str]:
    """Return the findings of all checks. Return one finding if they do not end in time. Blocks. Raises Cancelled.

    The checks run in a separate thread, because a broken disk or driver makes calls hang.
    """
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(each for check in checks for each in check()), daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        if cancelled.is_set():
            raise Cancelled("stopped during the check of the node")
        thread.join(_POLL)
    return [f"its disk or GPU driver does not answer within {seconds:g} s"] if thread.is_alive() else found


_LEAST_FREE = 512 << 20  # bytes on the disk of the working directory
_LEAST_INODES = 1000
_WRITTEN = 1 << 20  # bytes


def disk_problems(directory: Path) -> Iterator[str]:
    """Yield problems of the disk with this directory: too little space, or an error when a file is written."""
    file = directory / ".preflight"
    data = os.urandom(_WRITTEN)
    try:
        free = os.statvfs(directory)
        if (space := free.f_bavail * free.f_frsize) < _LEAST_FREE:
            yield f"its disk has {size(space)} free, less than {size(_LEAST_FREE)} ({directory})"
        if free.f_files and free.f_favail < _LEAST_INODES:  # 0 files: the file system has no limit
            yield f"its disk has room for only {free.f_favail} more files ({directory})"
        with file.open("wb") as output:
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        if file.read_bytes() != data:
            yield f"its disk returns other bytes than were written ({directory})"
    except OSError as error:
        yield f"its disk does not store a file: {error}"
    with contextlib.suppress(OSError):
        file.unlink()


_LEAST_SHARE = 0.5  # of the container's memory; less means that other processes use memory which YARN has promised
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)


def memory_problems(container_mib: int, meminfo: Path = Path("/proc/meminfo")) -> Iterator[str]:
    """Yield a problem if the node has much less available memory than the container may use."""
    match = _AVAILABLE.search(meminfo.read_text())
    if match and int(match[1]) << 10 < _LEAST_SHARE * (container_mib << 20):
        yield f"its node has {size(int(match[1]) << 10)} of memory available for a container of {container_mib} MiB"


def clock_problems() -> Iterator[str]:
    """Yield a problem if the node's clock differs from the clock that the job follows."""
    if ahead := -clock.correction():
        yield f"its clock is {clock.difference(ahead)} the clock of the job"


def gpu_problems(names: Sequence[str], wanted: int, nvml: Callable[..., Nvml] = Nvml) -> Iterator[str]:
    """Yield problems of the container's GPUs that NVML reports: missing GPUs, and damaged memory."""
    try:
        yield from nvml(names, wanted).faults()
    except NvmlMissingError as error:
        log.info("the GPUs are not checked: %s", error)
    except NvmlError as error:
        yield f"its GPUs cannot be used: {error}"


_RECENT = 3600.0  # seconds
_RECORDS = 10_000  # of the kernel's log, at most
_RECORD_BYTES = 8192  # maximum size of a record
# Errors of the hardware. Programs cause most other numbers. Source: NVIDIA's document "XID Errors".
_BROKEN = frozenset({48, 64, 74, 79, 95, 119, 120, 140, 143})
_XID = re.compile(rb"\d+,\d+,(\d+),[^;]*;NVRM: Xid \(([^)]*)\): (\d+),")


def driver_problems(kernel_log: Path = Path("/dev/kmsg")) -> Iterator[str]:
    """Yield the newest XID error that NVIDIA's driver reported within an hour. Many nodes hide the log from users."""
    newest = ""
    with contextlib.suppress(OSError):
        log_file = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK)
        try:
            for record in islice(iter(partial(os.read, log_file, _RECORD_BYTES), b""), _RECORDS):
                newest = _recent_fault(record) or newest
        finally:
            os.close(log_file)
    if newest:
        yield newest


def _recent_fault(record: bytes) -> str:
    match = _XID.match(record)
    if match is None or int(match[3]) not in _BROKEN:
        return ""
    age = time.clock_gettime(time.CLOCK_MONOTONIC) - int(match[1]) / 1e6
    return f"GPU {match[2].decode('ascii', 'replace')} had XID error {int(match[3])}" if age < _RECENT else ""


_NEXT = 3  # number of following ranks to which each rank sends a message
_RING_SECONDS = 120.0  # tasks arrive at different times, because some wait for GPUs
_CALL_SECONDS = 5.0
_PAUSE = 0.3  # seconds between two calls to a task that does not answer
_MESSAGE = 64 << 10  # bytes; long enough for several packets of the largest size


@attrs.frozen
class Ring:
    """The ranks of a cluster that check their network, as one rank sees them."""

    rank: int
    addresses: Mapping[int, TaskAddress]  # of all ranks
    name: str  # the same for all ranks of one generation, different for all others

    @classmethod
    def of(cls, context: ExecutorContext, order: StartOrder) -> Optional[Ring]:
        """Return the ring of a start, or None if the task is not in the cluster or alone in it."""
        container = context.container
        rank = order.rank(container.task_type, container.index)
        found = ranks(order.cluster.tasks)
        addresses = {found[key]: each for each in order.cluster.tasks if (key := (each.type, each.index)) in found}
        name = f"{contract.NAMESPACE} {container.identity.application_id} {order.generation}"
        return cls(rank, addresses, name) if rank is not None and len(addresses) > 1 else None

    @property
    def following(self) -> list[int]:
        """The ranks to which this rank sends messages."""
        return [(self.rank + step) % len(self.addresses) for step in self._steps]

    @property
    def preceding(self) -> list[int]:
        """The ranks that send messages to this rank."""
        return [(self.rank - step) % len(self.addresses) for step in self._steps]

    @property
    def _steps(self) -> range:
        return range(1, min(_NEXT, len(self.addresses) - 1) + 1)

    def message(self, rank: int) -> bytes:
        """Return the message from ``rank``."""
        return f"{self.name} {rank}\n".encode().ljust(_MESSAGE, b".")


def check_network(ring: Ring, ports: HeldPorts, cancelled: threading.Event, seconds: float = _RING_SECONDS) -> None:
    """Exchange messages with other ranks, at this task's main port. Blocks. Raises UnfitNodeError, Cancelled.

    Other ranks that cannot be reached are logged. They are faulty themselves if nobody reaches them.
    """
    with ports.listening(MAIN_PORT) as listener:
        exchange = _Exchange(ring)
        asyncio.run(exchange.run(listener, cancelled, seconds))
    if cancelled.is_set():
        raise Cancelled("stopped during the check of the network")
    if not exchange.reached:
        raise UnfitNodeError(f"it reaches none of {some(exchange.unreached())}")
    if not exchange.heard:
        raise UnfitNodeError(f"it can be reached from none of {some(exchange.unheard())}")
    if missing := exchange.unreached():
        log.warning("the check of the network did not reach %s", some(missing))


class _Exchange:
    """The messages of one rank: which ranks it has reached, and which ranks have reached it."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._errors: dict[int, str] = {}
        self._tasks: list[asyncio.Future[None]] = []
        self.reached: set[int] = set()
        self.heard: set[int] = set()

    async def run(self, listener: socket.socket, cancelled: threading.Event, seconds: float) -> None:
        """Exchange messages until all ranks have answered, or until a deadline or a request to stop."""
        ring, deadline = self._ring, time.monotonic() + seconds
        server = await asyncio.start_server(self._accept, sock=listener, limit=_MESSAGE)
        self._tasks += [asyncio.ensure_future(self._call(rank)) for rank in ring.following]
        try:
            while not (self.reached.issuperset(ring.following) and self.heard.issuperset(ring.preceding)):
                if cancelled.is_set() or time.monotonic() >= deadline:
                    return
                await asyncio.sleep(_POLL)
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, rank: int) -> None:
        address = self._ring.addresses[rank]
        while True:
            try:
                await wait_with_timeout(self._call_once(rank, address), _CALL_SECONDS)
            except asyncio.TimeoutError:
                self._errors[rank] = f"no answer within {_CALL_SECONDS:g} s"
            except (OSError, EOFError) as error:
                self._errors[rank] = str(error)
            if rank in self.reached:
                return
            await asyncio.sleep(_PAUSE)

    async def _call_once(self, rank: int, address: TaskAddress) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.ports[MAIN_PORT], limit=_MESSAGE)
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
            senders = [rank for rank in self._ring.preceding if received == self._ring.message(rank)]
            if senders:
                writer.write(self._ring.message(self._ring.rank))
                await wait_with_timeout(writer.drain(), _CALL_SECONDS)
                self.heard.update(senders)
            # Close after the other end, which may not have read the answer yet.
            await wait_with_timeout(reader.read(), _CALL_SECONDS)

    def unreached(self) -> list[str]:
        """Return the ranks that this rank did not reach, each with its address and the last error."""
        missing = [rank for rank in self._ring.following if rank not in self.reached]
        return [f"{self._name(rank)} ({self._errors.get(rank, 'no call ended')})" for rank in missing]

    def unheard(self) -> list[str]:
        """Return the ranks that did not reach this rank."""
        return [self._name(rank) for rank in self._ring.preceding if rank not in self.heard]

    def _name(self, rank: int) -> str:
        address = self._ring.addresses[rank]
        return f"{address.type}:{address.index} at {address.main}"
