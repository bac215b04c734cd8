"""The series of an application: heartbeats folded into samples, samples into segments, segments onto the store."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessState, Task
from tony_provider.runtime.am.store_writer import FileUpdater
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.history.samples import (
    SampleCompressor,
    SampleSegmentHeader,
    TaskSample,
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
            return await wait_with_timeout(self._write_all(), _LAST_WRITE)
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
        header = SampleSegmentHeader(
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
            await wait_with_timeout(self._stopping.wait(), seconds)
        except asyncio.TimeoutError:
            return


MOST_BYTES = 8 << 20  # of an application: what a page can read in a second or two, and small beside any checkpoint
_SOONEST_SAMPLE = 3.0  # seconds between two samples of a task, at the beginning of a job
_LATER = 10.0  # seconds between them at least, once the job is older
_BUDGET_PART = 0.02  # of the job's age, in between
_HORIZON = 7 * 86400.0  # seconds, see above
_TAIL = 2.0  # one part in so many of what is left is used while an older job's age grows by a factor of e
_LEADER = 8  # one part in so many is the leader's: it has the curves that people look at
_FIRST_BYTES = 150.0  # of a line, before any is known
_FIRST_RATIO = 0.35  # what compression makes of a line, before any is known


@attrs.define
class _Share:
    """Part of the bytes. Sizes of lines are those before compression."""

    most: float
    lines: int = 0
    size: float = 0.0

    def seconds(self, elapsed: float, tasks: int, ratio: float) -> float:
        """Between two samples of each of so many tasks."""
        left = self.most - self.size * ratio
        line = self.size / self.lines if self.lines else _FIRST_BYTES
        if left <= 0:
            return float("inf")
        soonest = min(max(_SOONEST_SAMPLE, _BUDGET_PART * elapsed), _LATER)
        folds = _TAIL + max(0.0, math.log(_HORIZON / max(elapsed, 1.0)))  # by e, that ``left`` is for
        return max(soonest, elapsed * folds * tasks * line * ratio / left)


class SeriesBudget:
    """The bytes of one application's series, those of its former application masters included."""

    def __init__(self, kept: int = 0, most: int = MOST_BYTES) -> None:
        """``kept``: bytes that former application masters have used."""
        self._most = most
        self._used = kept
        self._size = 0.0  # of the lines that ``_used`` is of, before compression
        self._leader = _Share(most / _LEADER)
        self._others = _Share(most - most / _LEADER)
        self._ratio = _FIRST_RATIO
        for share in (self._leader, self._others):
            share.size = kept * share.most / most / self._ratio
        self._former = kept

    def seconds(self, elapsed: float, tasks: int, *, leads: bool) -> float:
        """How far apart a task's samples are to be, in a job of so many tasks that has run for ``elapsed`` seconds."""
        share = self._leader if leads else self._others
        return share.seconds(elapsed, 1 if leads else max(1, tasks - 1), self._ratio)

    def allows(self, pending: int) -> bool:
        """Whether so many bytes may be used that are not yet."""
        return self._used + pending <= self._most

    def sampled(self, size: int, *, leads: bool) -> None:
        """A sample's line has so many bytes, before compression."""
        share = self._leader if leads else self._others
        share.lines += 1
        share.size += size

    def used(self, size: int, compressed: int) -> None:
        """A segment has been made of lines of so many bytes."""
        self._used += compressed
        self._size += size
        if self._size:
            self._ratio = (self._used - self._former) / self._size


@attrs.define
class TaskBucket:
    """Heartbeats of one start of a task, folded into what will be its next sample.

    Times are the session's, in seconds. Each heartbeat speaks for the time since the one before.
    """

    attempt: int
    generation: int
    begun: float
    heard: float
    before: Counters  # when it began
    newest: Counters
    beats: int = 0  # and other reports
    rss_bytes: Optional[int] = None
    cpu_seconds: float = 0.0  # percent times seconds
    cpu_heard: float = 0.0  # seconds that this is of; so the next two
    gpu_seconds: float = 0.0
    gpu_heard: float = 0.0
    gpu_bytes: Optional[int] = None
    progress: Optional[TaskProgress] = None
    use: Optional[ContainerUse] = None  # by the newest heartbeat

    @property
    def seconds(self) -> float:
        return self.heard - self.begun

    def add(self, beat: Heartbeat, now: float) -> None:
        seconds = self._hear(now)
        self.rss_bytes = max(self.rss_bytes or 0, beat.rss_bytes)
        self.cpu_seconds += beat.cpu_percent * seconds
        self.cpu_heard += seconds
        if beat.gpu_percent is not None:
            self.gpu_seconds += beat.gpu_percent * seconds
            self.gpu_heard += seconds
        if beat.gpu_bytes is not None:
            self.gpu_bytes = max(self.gpu_bytes or 0, beat.gpu_bytes)
        self.use = ContainerUse.of(beat, self.newest if self.use is not None else None, seconds)
        self.newest = Counters.of(beat)
        self.progress = beat.progress or self.progress

    def end(self, progress: Optional[TaskProgress], now: float) -> None:
        """Its user process has ended, and had reported this."""
        self._hear(now)
        self.progress = progress or self.progress

    def _hear(self, now: float) -> float:
        """The seconds since the last time."""
        seconds = max(0.0, now - self.heard)
        self.beats += 1
        self.heard += seconds
        return seconds

    def sample(self, task: str, time_ms: int, metrics: dict[str, float]) -> TaskSample:
        """``metrics``: those of the progress that are kept."""
        progress = self.progress
        return TaskSample(
            time_ms=time_ms,
            seconds=self.seconds,
            task=task,
            attempt=self.attempt,
            generation=self.generation,
            rss_bytes=self.rss_bytes,
            cpu_percent=self.cpu_seconds / self.cpu_heard if self.cpu_heard else None,
            read_bytes=counted_between(self.before.read, self.newest.read),
            written_bytes=counted_between(self.before.written, self.newest.written),
            received_bytes=counted_between(self.before.received, self.newest.received),
            sent_bytes=counted_between(self.before.sent, self.newest.sent),
            gpu_percent=self.gpu_seconds / self.gpu_heard if self.gpu_heard else None,
            gpu_bytes=self.gpu_bytes,
            step=progress.step if progress else None,
            steps_per_second=progress.steps_per_second if progress else None,
            metrics=metrics,
        )

    def rest(self) -> TaskBucket:
        """The one that begins where this one has ended."""
        return TaskBucket(self.attempt, self.generation, self.heard, self.heard, self.newest, self.newest, use=self.use)


@attrs.frozen
class Counters:
    """Of a container, in bytes since its executor began. None: cannot be told."""

    read: Optional[int] = None
    written: Optional[int] = None
    received: Optional[int] = None
    sent: Optional[int] = None

    @classmethod
    def of(cls, beat: Heartbeat) -> Counters:
        return cls(beat.read_bytes, beat.written_bytes, beat.received_bytes, beat.sent_bytes)


@attrs.frozen(kw_only=True)
class ContainerUse:
    """By its newest heartbeat. Rates are bytes per second since the one before. What cannot be told is None."""

    gpu_percent: Optional[float] = None  # mean over its GPUs; 100 is one of them, busy all the time
    gpu_bytes: Optional[int] = None  # of all its GPUs together
    read_rate: Optional[float] = None  # from disks
    written_rate: Optional[float] = None
    received_rate: Optional[float] = None  # by network, where the container has one of its own
    sent_rate: Optional[float] = None

    @classmethod
    def of(cls, beat: Heartbeat, before: Optional[Counters], seconds: float) -> ContainerUse:
        """``before``: so many seconds ago; None: this is the first heartbeat, after a time of unknown length."""
        before, now = before or Counters(), Counters.of(beat)
        return cls(
            gpu_percent=beat.gpu_percent,
            gpu_bytes=beat.gpu_bytes,
            read_rate=_rate(before.read, now.read, seconds),
            written_rate=_rate(before.written, now.written, seconds),
            received_rate=_rate(before.received, now.received, seconds),
            sent_rate=_rate(before.sent, now.sent, seconds),
        )


def counted_between(before: Optional[int], now: Optional[int]) -> Optional[int]:
    """What a counter has counted in between. None: cannot be told."""
    return None if before is None or now is None else max(0, now - before)


def _rate(before: Optional[int], now: Optional[int], seconds: float) -> Optional[float]:
    counted = counted_between(before, now)
    return None if counted is None or seconds <= 0 else counted / seconds


MOST_OF_A_TASK = 50
MOST_CHARACTERS = 100
_MOST_REMEMBERED = 1000  # names that are left out
_TOLD = 5


class KeptMetrics:
    """Chooses, for each task, the first names that it has reported; counts the others."""

    def __init__(self) -> None:
        self._kept: dict[str, set[str]] = {}  # by task
        self._left_out: set[str] = set()

    def of(self, task: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """Those of a task's metrics that are kept."""
        if not metrics:
            return {}
        kept = self._kept.setdefault(task, set())
        for name in metrics:
            if name not in kept:
                if len(kept) < MOST_OF_A_TASK and len(name) <= MOST_CHARACTERS:
                    kept.add(sys.intern(name))  # a thousand tasks have the same ones
                elif len(self._left_out) < _MOST_REMEMBERED:
                    self._left_out.add(name[:MOST_CHARACTERS])
        return {name: value for name, value in metrics.items() if name in kept}

    @property
    def left_out(self) -> int:
        """How many names are left out; no more than a thousand are counted."""
        return len(self._left_out)

    @property
    def such_as(self) -> list[str]:
        """Some of them."""
        return sorted(self._left_out)[:_TOLD]
