"""The content of heartbeats: what an executor says of itself and of its user process."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Optional

from tony_provider.runtime.executor import disk, processes
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.run import Run
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.text import replaced


class HeartbeatContent:
    """Makes the heartbeats of one executor."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._usage = processes.UsageMeter()

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
        if current is not None:
            await self._add(heartbeat, current, table, ending=ending)
        if self._context.hadoop is not None:
            await asyncio.to_thread(self._context.hadoop.follow_tokens)
        if await asyncio.to_thread(disk.problem, self._context.workspace.root):
            await asyncio.to_thread(self._context.checkpoints.make_room)
            heartbeat.activity += ", disk full"
        return heartbeat

    @staticmethod
    async def _add(heartbeat: tony_pb2.Heartbeat, current: Run, table: processes.Table, *, ending: bool) -> None:
        if current.pid is not None:
            processes.reap_orphans(table, os.getpid(), current.pid)
        await current.look_at_memory()
        progress = await current.progress()
        if progress is not None:
            heartbeat.progress.CopyFrom(progress)
        if not (ending and current.over.is_set()):
            heartbeat.activity = current.activity
        heartbeat.trouble = replaced(current.trouble)
