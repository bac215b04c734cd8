"""What the container as a whole reads, writes, receives and sends, what its GPUs do, and how busy its node is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Optional

from tony_provider.runtime.executor.disk_use import DiskMeter
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.gpus.dealt_gpus import is_given
from tony_provider.runtime.executor.gpus.gpu_meter import GpuMeter
from tony_provider.runtime.executor.gpus.nvml import Nvml
from tony_provider.runtime.executor.network_use import NetworkMeter
from tony_provider.runtime.executor.node_use import NodeMeter
from tony_provider.runtime.frameworks.task_environment import VISIBLE_DEVICES
from tony_provider.runtime.protocol import tony_pb2


class ContainerMeters:
    """The meters of one container; what cannot be told they leave out."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._disks = DiskMeter()
        self._node = NodeMeter()
        self._network = NetworkMeter(docker=context.container.image is not None)
        self._gpus: Optional[GpuMeter] = None  # until a container with GPUs knows which

    def fill(self, heartbeat: tony_pb2.Heartbeat, pids: Iterable[int]) -> None:
        """Put the newest numbers into a heartbeat. ``pids``: see DiskMeter. Blocks shortly."""
        disks, network = self._disks.measure(pids), self._network.measure()
        if disks:
            heartbeat.read_bytes, heartbeat.written_bytes = disks.read, disks.written
        if network:
            heartbeat.received_bytes, heartbeat.sent_bytes = network.received, network.sent
        busy = self._node.measure()
        if busy is not None:
            heartbeat.node_busy_percent = busy
        gpus = self._gpu_meter()
        use = gpus.take() if gpus else None
        if use and use.percent is not None:
            heartbeat.gpu_percent = use.percent
        if use and use.bytes is not None:
            heartbeat.gpu_bytes = use.bytes

    def _gpu_meter(self) -> Optional[GpuMeter]:
        wanted = self._context.container.spec.gpus
        if self._gpus is None and wanted and (names := self._gpu_names()) is not None:
            self._gpus = GpuMeter(partial(Nvml, names, wanted))
        return self._gpus

    def _gpu_names(self) -> Optional[list[str]]:
        """Of the container's GPUs, empty: all that it sees; None where they are not dealt yet."""
        environ, dealt = self._context.container.environ, self._context.gpus
        if dealt is not None and not is_given(environ):
            return dealt.names or None
        return [name for name in environ.get(VISIBLE_DEVICES, "").split(",") if name]
