"""The content of heartbeats: what an executor says of itself and of its user process."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Optional

from tony_provider.runtime.executor import disk, processes
from tony_provider.runtime.executor.container_meters import ContainerMeters
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.run import Run
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.text import replaced


class HeartbeatContent:
    """Makes the heartbeats of one executor."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._usage = processes.UsageMeter()
        self._meters = ContainerMeters(context)
        self._usage_of: dict[int, processes.UsageMeter] = {}  # by local rank, of all but the first

    async def take(self, current: Optional[Run], activity: str, *, ending: bool) -> tony_pb2.Heartbeat:
        """A heartbeat of this moment.

        ``activity`` is the executor's own, said when no user process runs; ``ending``: no other will.
        """
        table = await asyncio.to_thread(processes.descendants, os.getpid())
        usage = self._usage.measure(table, time.monotonic())
        heartbeat = tony_pb2.Heartbeat(
            rss_bytes=usage.rss_bytes,
            cpu_percent=usage.cpu_percent,
            activity=activity,
            output_problem=self._context.output.problem,
        )
        await asyncio.to_thread(self._meters.fill, heartbeat, table)
        if current is not None:
            await self._add(heartbeat, current, table, ending=ending)
        if self._context.hadoop is not None:
            await asyncio.to_thread(self._context.hadoop.follow_tokens)
        if await asyncio.to_thread(disk.problem, self._context.workspace.root):
            await asyncio.to_thread(self._context.checkpoints.make_room)
            heartbeat.activity += ", disk full"
        limits.fit(heartbeat)
        return heartbeat

    async def _add(self, heartbeat: tony_pb2.Heartbeat, current: Run, table: processes.Table, *, ending: bool) -> None:
        if current.pids:
            processes.reap_orphans(table, os.getpid(), current.children)
        heartbeat.ready = current.ready
        await current.look_at_memory()
        progress = await current.progress()
        if progress is not None:
            heartbeat.progress.CopyFrom(progress)
        if not (ending and current.over.is_set()):
            heartbeat.activity = current.activity
        heartbeat.trouble = replaced(current.trouble)
        heartbeat.notices.extend(current.notices)
        for local_rank, process in list(enumerate(current.running))[1:]:
            own = {pid: table[pid] for pid in (process.pid, *processes.below(process.pid, table)) if pid in table}
            progress = await current.progress_of(local_rank)
            heartbeat.further.append(self._process_beat(local_rank, process.rank, own, progress))

    def _process_beat(
        self, local_rank: int, rank: int, table: processes.Table, progress: Optional[tony_pb2.Progress]
    ) -> tony_pb2.ProcessBeat:
        usage = self._usage_of.setdefault(local_rank, processes.UsageMeter()).measure(table, time.monotonic())
        return tony_pb2.ProcessBeat(
            local_rank=local_rank,
            rank=rank,
            rss_bytes=usage.rss_bytes,
            cpu_percent=usage.cpu_percent,
            progress=progress,
        )
