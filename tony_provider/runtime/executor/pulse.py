"""What an executor says of itself and of its user process in each heartbeat."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Optional

from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.generation import Generation
from tony_provider.runtime.protocol import tony_pb2


class Pulse:
    def __init__(self) -> None:
        self._usage = processes.UsageMeter()

    async def take(self, current: Optional[Generation], activity: str, *, ending: bool) -> tony_pb2.Heartbeat:
        """``activity`` is the executor's own, said when no user process runs; ``ending``: no other will."""
        table = await asyncio.to_thread(processes.descendants, os.getpid())
        usage = self._usage.measure(table, time.monotonic())
        heartbeat = tony_pb2.Heartbeat(rss_bytes=usage.rss_bytes, cpu_percent=usage.cpu_percent, activity=activity)
        if current is None:
            return heartbeat
        if current.pid is not None:
            processes.reap_orphans(table, os.getpid(), current.pid)
        await current.look_at_memory()
        progress = await current.progress()
        if progress is not None:
            heartbeat.progress.CopyFrom(progress)
        if current.exited is None:
            heartbeat.activity = current.activity
        elif not ending:
            heartbeat.activity = "ended"
        return heartbeat
