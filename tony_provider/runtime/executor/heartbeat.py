"""Heartbeats of an executor, and the meters that fill them: disks, network, processors of the node, and GPUs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Optional

import attrs
from google.protobuf.message import Message

from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.executor import processes, workspace
from tony_provider.runtime.executor.gpus import GpuMeter, Nvml, container_gpus
from tony_provider.runtime.executor.process_start import ProcessStart
from tony_provider.runtime.executor.start_context import ExecutorContext
from tony_provider.runtime.protocol import limits, tony_pb2

Measured = dict[str, float]
"""Values by fields of the message Heartbeat. A meter leaves out unknown values."""


def put(message: Message, measured: Measured) -> None:
    """Write values into the fields of a message."""
    for field, value in measured.items():
        setattr(message, field, value)


@attrs.define
class DiskMeter:
    """Counts the bytes that the executor and its descendants have transferred, by the counters of processes in /proc.

    The kernel adds the counters of an ended process to its parent when the parent reaps it, and the executor reaps all
    orphans. So the executor's counters include all ended processes. Reading parents before their children avoids
    counting a process twice.
    """

    proc: Path = Path("/proc")
    _most: tuple[int, int] = 0, 0  # highest sums so far; a sum may miss processes that are reaped during the reading

    def measure(self, pids: Iterable[int]) -> Measured:
        """Return the bytes, or an empty dict if the kernel does not count them. Blocks briefly.

        ``pids``: all descendants of this process, parents first.
        """
        own = self._read("self")
        if own is None:
            return {}
        read, written = zip(own, *(use for pid in pids if (use := self._read(str(pid)))))
        self._most = max(self._most[0], sum(read)), max(self._most[1], sum(written))
        return {"read_bytes": self._most[0], "written_bytes": self._most[1]}

    def _read(self, process: str) -> Optional[tuple[int, int]]:
        """Return the counters of a process, or None if it has ended or may not be read. See proc_pid_io(5)."""
        try:
            lines = (self.proc / process / "io").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None
        fields = dict(line.split(": ", 1) for line in lines)
        return int(fields["read_bytes"]), int(fields["write_bytes"])


_RECEIVED, _SENT = 0, 8  # columns of /proc/net/dev, see proc_pid_net(5)
_LOOPBACK = "lo"


@attrs.frozen
class NetworkMeter:
    """Reads the counters of the interfaces that this process sees, except the loopback.

    These are the container's own counters only in a Docker container that does not share the node's network.
    """

    docker: bool  # whether this is a Docker container
    counters: Path = Path("/proc/self/net/dev")
    interfaces: Path = Path("/sys/class/net")

    def measure(self) -> Measured:
        """Return the bytes since the network was created, or an empty dict for a node's network. Blocks briefly."""
        if not self.docker:
            return {}
        try:
            lines = self.counters.read_text().splitlines()[2:]
        except (FileNotFoundError, PermissionError):
            return {}
        received = sent = 0
        for line in lines:
            name, _, numbers = line.partition(":")
            name = name.strip()
            if name == _LOOPBACK:
                continue
            if self._is_of_a_node(name):
                return {}
            columns = numbers.split()
            received, sent = received + int(columns[_RECEIVED]), sent + int(columns[_SENT])
        return {"received_bytes": received, "sent_bytes": sent}

    def _is_of_a_node(self, name: str) -> bool:
        """Return whether an interface is a device or a bridge to containers, which only a node's network has."""
        interface = self.interfaces / name
        return (interface / "device").exists() or (interface / "bridge").exists()


_COUNTED = 8  # columns of the first line of /proc/stat, see proc_stat(5); they include the time of guests
_IDLE = slice(3, 5)  # the columns idle and iowait; time that a hypervisor took away counts as busy


@attrs.define
class NodeMeter:
    """Measures how busy the node's processors were since the last measurement."""

    counters: Path = Path("/proc/stat")
    _before: Optional[list[int]] = None

    def measure(self) -> Measured:
        """Return the share of busy processor time in percent. Blocks briefly.

        Return an empty dict at the first call, and if the share is unknown.
        """
        try:
            with self.counters.open() as file:
                name, *numbers = file.readline().split()
        except (FileNotFoundError, PermissionError):
            return {}
        now = [int(each) for each in numbers[:_COUNTED]]
        before, self._before = self._before, now
        if name != "cpu" or before is None:
            return {}
        spent = [max(0, new - old) for new, old in zip(now, before)]
        return {"node_busy_percent": 100.0 * (1 - sum(spent[_IDLE]) / sum(spent))} if sum(spent) else {}


class ContainerMeters:
    """The meters of one container."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._usage = processes.UsageMeter()
        self._disks = DiskMeter()
        self._node = NodeMeter()
        self._network = NetworkMeter(docker=context.container.image is not None)
        self._gpus: Optional[GpuMeter] = None  # None until the GPUs of the container are known

    def measure(self, table: processes.Table) -> Measured:
        """Return the newest values. ``table``: all descendants of this process, parents first. Blocks briefly."""
        gpus = self._gpu_meter()
        return {
            **self._usage.measure(table, time.monotonic()),
            **self._disks.measure(table),
            **self._network.measure(),
            **self._node.measure(),
            **((gpus.take() or {}) if gpus else {}),
        }

    def _gpu_meter(self) -> Optional[GpuMeter]:
        wanted = self._context.container.spec.gpus
        names = container_gpus(self._context.container.environ, self._context.gpus)
        if self._gpus is None and wanted and names is not None:
            self._gpus = GpuMeter(partial(Nvml, names, wanted))
        return self._gpus


class HeartbeatContent:
    """Creates the heartbeats of one executor."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._meters = ContainerMeters(context)
        self._usage_of: dict[int, processes.UsageMeter] = {}  # by local rank, for all processes except the first

    async def take(self, current: Optional[ProcessStart], activity: str, *, ending: bool) -> tony_pb2.Heartbeat:
        """Return a heartbeat with the present values.

        ``activity``: the executor's activity, reported while no user process runs. ``ending``: no other process will
        start.
        """
        table = await asyncio.to_thread(processes.descendants, os.getpid())
        heartbeat = tony_pb2.Heartbeat(activity=activity, output_problem=self._context.output.problem)
        put(heartbeat, await asyncio.to_thread(self._meters.measure, table))
        if current is not None:
            await self._add(heartbeat, current, table, ending=ending)
        if self._context.hadoop is not None:
            await asyncio.to_thread(self._context.hadoop.follow_tokens)
        if await asyncio.to_thread(workspace.disk_problem, self._context.workspace.root):
            await asyncio.to_thread(self._context.checkpoints.make_room)
            heartbeat.activity += ", disk full"
        limits.fit_heartbeat(heartbeat)
        return heartbeat

    async def _add(
        self, heartbeat: tony_pb2.Heartbeat, current: ProcessStart, table: processes.Table, *, ending: bool
    ) -> None:
        if current.pids:
            processes.reap_orphans(table, os.getpid(), current.children)
        heartbeat.ready = current.ready
        await current.read_memory()
        progress = await current.progress()
        if progress is not None:
            heartbeat.progress.CopyFrom(progress)
        if not (ending and current.over.is_set()):
            heartbeat.activity = current.activity
        heartbeat.trouble = replaced(current.problem)
        heartbeat.notices.extend(current.notices)
        for local_rank, process in list(enumerate(current.running))[1:]:
            own = {pid: table[pid] for pid in (process.pid, *processes.below(table, process.pid)) if pid in table}
            progress = await current.progress(local_rank)
            heartbeat.further.append(self._process_beat(local_rank, process.rank, own, progress))
        heartbeat.parameters.update(current.parameters)

    def _process_beat(
        self, local_rank: int, rank: int, table: processes.Table, progress: Optional[tony_pb2.Progress]
    ) -> tony_pb2.ProcessBeat:
        usage = self._usage_of.setdefault(local_rank, processes.UsageMeter()).measure(table, time.monotonic())
        beat = tony_pb2.ProcessBeat(local_rank=local_rank, rank=rank, progress=progress)
        put(beat, usage)
        return beat
