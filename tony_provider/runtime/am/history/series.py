"""The series of an application: heartbeats folded into samples, samples into segments, segments onto the store."""

from __future__ import annotations

import asyncio
import math
from typing import Callable, Optional

from tony_provider.runtime import contract
from tony_provider.runtime.am.file_updater import FileUpdater
from tony_provider.runtime.am.history.container_use import ContainerUse, Counters
from tony_provider.runtime.am.history.kept_metrics import KeptMetrics
from tony_provider.runtime.am.history.series_budget import SeriesBudget
from tony_provider.runtime.am.history.task_bucket import TaskBucket
from tony_provider.runtime.am.session.state.process_state import ProcessState
from tony_provider.runtime.am.session.state.task import Heartbeat, Task
from tony_provider.runtime.deadline import within
from tony_provider.runtime.history.segments import (
    SampleCompressor,
    SegmentHeader,
    encode_header,
    encode_sample,
    segment_name,
)
from tony_provider.runtime.protocol.status import TaskProgress
from tony_provider.runtime.storage import Storage, uris

_SOONEST = 15.0  # seconds that a segment is of, at the beginning of a job
_LATEST = 900.0
_PART = 0.05  # of the job's age that a segment is of, in between: what a killed master loses
_RETRY = 10.0  # seconds after a segment could not be written
_MOST_WAITING = 1 << 20  # bytes of samples that are held while the store takes none
_LAST_WRITE = 10.0  # seconds for the last segment: the result comes after it
_HEADER = 4096  # bytes, at most
_GONE = 60.0  # seconds without a heartbeat: what there is of the task is its last sample
_AT_ONCE = 500  # samples, then others have the loop


class Series:
    """The series of one application master. Times are the session's, in seconds.

    Nothing here blocks, fails the job, or holds more than two segments.
    """

    def __init__(
        self,
        storage: Storage,
        application_dir: str,
        application_id: str,
        *,
        am_attempt: int = 1,
        kept: int = 0,
        tell: Callable[[str, str], None] = lambda event, message: None,
    ) -> None:
        """``kept``: bytes of former application masters' series. ``tell``: see FileUpdater."""
        self._storage = storage
        self._directory = uris.join(application_dir, contract.HISTORY_DIR)
        self._application_id = application_id
        self._am_attempt = am_attempt
        self._tell = tell
        self._budget = SeriesBudget(kept)
        self._metrics = KeptMetrics()
        self._buckets: dict[str, TaskBucket] = {}
        self._closed: dict[str, TaskBucket] = {}  # of each task the last one that nothing is added to
        self._compressor = SampleCompressor()
        self._lines = 0  # in the compressor
        self._size = 0  # of these, before compression
        self._left_out = 0
        self._number = 0  # of the newest segment
        self._file: Optional[FileUpdater] = None  # that is to be written
        self._stopping = asyncio.Event()
        self._started = 0.0
        self._epoch = 0.0

    def begin(self, started: float, epoch: float) -> None:
        """``started``: when the job was; ``epoch`` + the session's time = seconds since the epoch."""
        self._started, self._epoch = started, epoch

    @property
    def trouble(self) -> str:
        """Since when the store does not take the series, and why; empty while all is well."""
        return self._file.trouble if self._file else ""

    # ---- samples -----------------------------------------------------------------------------------------------

    def heard(self, task: Task, beat: Heartbeat, now: float, *, leads: bool) -> None:
        """A heartbeat has come; to be called before the task knows of it. ``leads``: it is the leader's."""
        process = task.process
        if process is None or process.started_at is None or not process.runs:
            return
        bucket = self._buckets.get(task.name)
        if bucket is None or (bucket.attempt, bucket.generation) != (task.attempt, process.generation):
            if bucket is not None:
                self._close(task.name, leads=leads)
            bucket = self._buckets[task.name] = self._new_bucket(task, process, Counters.of(beat), now)
        bucket.add(beat, now)
        if bucket.seconds >= self._budget.seconds(now - self._started, len(self._buckets), leads=leads):
            self._sample(task.name, bucket, leads=leads)
            self._buckets[task.name] = bucket.rest()

    def use(self) -> dict[str, ContainerUse]:
        """What the tasks whose user processes run use at present, by their names."""
        return {name: bucket.use for name, bucket in self._buckets.items() if bucket.use is not None}

    def ended(self, task: Task, progress: Optional[TaskProgress], now: float, *, leads: bool) -> None:
        """A user process has ended; to be called before the task knows of it. ``progress``: its last report."""
        process = task.process
        if process is None or process.started_at is None or not process.runs:
            return
        bucket = self._buckets.get(task.name)
        if bucket is None or (bucket.attempt, bucket.generation) != (task.attempt, process.generation):
            if bucket is not None:
                self._close(task.name, leads=leads)
            bucket = self._buckets[task.name] = self._new_bucket(task, process, Counters(), now)
        bucket.end(progress, now)
        self._close(task.name, leads=leads)

    def _new_bucket(self, task: Task, process: ProcessState, counters: Counters, now: float) -> TaskBucket:
        """It goes on from the last one of the same container, whose executor counts on.

        What an executor counts begins with 0; where a former master has seen it, with what it says now.
        """
        began = now if process.started_at is None else min(process.started_at, now)
        former = self._closed.get(task.name)
        if former is not None and former.attempt == task.attempt:
            began, before = max(began, min(former.heard, now)), former.newest
        elif self._am_attempt == 1:
            before = Counters(0, 0, 0, 0)
        else:
            before = counters
        return TaskBucket(task.attempt, process.generation, began, began, before, before)

    def _close(self, task: str, *, leads: bool) -> None:
        """Nothing more is added to what there is of the task."""
        bucket = self._closed[task] = self._buckets.pop(task)
        self._sample(task, bucket, leads=leads)

    def _sample(self, task: str, bucket: TaskBucket, *, leads: bool) -> None:
        if not bucket.beats:
            return
        metrics = self._metrics.of(task, bucket.progress.metrics if bucket.progress else {})
        line = encode_sample(bucket.sample(task, int((self._epoch + bucket.heard) * 1000), metrics))
        pending = self._compressor.most_bytes + len(line)
        if pending > _MOST_WAITING or not self._budget.allows(pending + _HEADER):
            self._left_out += 1
            return
        self._budget.sampled(len(line), leads=leads)
        self._compressor.add(line)
        self._lines, self._size = self._lines + 1, self._size + len(line)

    async def _sample_all(self, heard_before: float = math.inf) -> None:
        """The last samples of all tasks that were not heard of since."""
        gone = [task for task, bucket in self._buckets.items() if bucket.heard < heard_before]
        for number, task in enumerate(gone):
            if task in self._buckets:  # others have had the loop: it may have ended
                self._close(task, leads=False)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    # ---- segments ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write segments until ``stop``."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            await self._pause(min(max(_SOONEST, _PART * (loop.time() - self._started)), _LATEST))
            await self._sample_all(loop.time() - _GONE)
            while not self._stopping.is_set() and not await self.write():
                await self._pause(_RETRY)

    def stop(self) -> None:
        """Have ``run`` end after the write under way."""
        self._stopping.set()

    async def finish(self) -> bool:
        """Write all that is there; False when that did not succeed. After ``run`` has ended."""
        await self._sample_all()
        try:
            return await within(self._write_all(), _LAST_WRITE)
        except asyncio.TimeoutError:
            return False

    async def _write_all(self) -> bool:
        return await self.write() and await self.write()

    async def write(self) -> bool:
        """Write a segment of the samples so far; False when the store did not take it, and it is to be tried again."""
        if self._file is None and self._lines:
            self._file = self._segment()
        if self._file is not None:
            if not await self._file.write():
                return False
            self._file = None
        return True

    def _segment(self) -> FileUpdater:
        """Close the one that is open."""
        self._number += 1
        header = SegmentHeader(
            application_id=self._application_id,
            samples_left_out=self._left_out,
            metrics_left_out=self._metrics.left_out,
            such_as=self._metrics.such_as,
        )
        data = encode_header(header) + self._compressor.finish()
        self._budget.used(self._size, len(data))
        self._compressor, self._lines, self._size = SampleCompressor(), 0, 0
        uri = uris.join(self._directory, segment_name(self._am_attempt, self._number))
        return FileUpdater(self._storage, uri, lambda: lambda: data, tell=self._tell)

    async def _pause(self, seconds: float) -> None:
        try:
            await within(self._stopping.wait(), seconds)
        except asyncio.TimeoutError:
            return
