"""Time series of each task's resource use and reported metrics, stored in segments within a size limit.

Heartbeats are folded into samples, and samples are written in compressed segments.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import Optional

import attrs

from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.session.actions import AddNote
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessState, Task
from tony_provider.runtime.am.store_writer import SegmentWriter
from tony_provider.runtime.application_history import (
    SampleCompressor,
    SampleSegmentHeader,
    TaskSample,
    encode_header,
    encode_sample,
    segment_name,
)
from tony_provider.runtime.common.concurrency import loop_time, wait_with_timeout
from tony_provider.runtime.protocol.metrics import (
    NO_COUNTS,
    SHOWN,
    MetricFold,
    MetricValues,
    present_use,
)
from tony_provider.runtime.protocol.status import TaskProgress

_SOONEST = 15.0  # seconds that a segment covers at the beginning of a job
_LATEST = 900.0  # maximum seconds that a segment covers
_PART = 0.05  # in between, a segment covers this share of the job's age; a killed master loses at most one segment
_MOST_WAITING = 1 << 20  # size limit in bytes of unwritten samples
_LAST_WRITE = 10.0  # seconds for the last segments, because the result waits for them
_HEADER = 4096  # size limit of a segment's header in bytes
_GONE = 60.0  # seconds without a heartbeat until a task's data becomes its last sample
_AT_ONCE = 500  # samples after which the method yields to the event loop


class Series(SegmentWriter):
    """The time series of one application master. Times are the session's, in seconds.

    No method blocks or fails the job. At most two segments are in memory.
    """

    _retry_seconds = 10.0

    def __init__(self, ownership: Ownership, *, kept: int = 0, note: Optional[AddNote] = None) -> None:
        """``kept``: bytes of former application masters' series. ``note``: see StoreWriter."""
        super().__init__("series", ownership, note)
        self._budget = SeriesBudget(kept)
        self._metrics = KeptMetrics()
        self._buckets: dict[str, TaskBucket] = {}
        self._closed: dict[str, TaskBucket] = {}  # the last completed bucket of each task
        self._compressor = SampleCompressor()
        self._lines = 0  # number of lines in the compressor
        self._size = 0  # size of these lines in bytes before compression
        self._left_out = 0  # number of samples omitted because of a size limit
        self._number = 0  # number of the newest segment
        self._segment: Optional[bytes] = None  # a completed, unwritten segment; ``name`` is the name of its file
        self._started = 0.0
        self._epoch = 0.0

    def begin(self, started: float, epoch: float) -> None:
        """``started``: start time of the job. ``epoch``: seconds to add to the session's time for Unix time."""
        self._started, self._epoch = started, epoch

    # ---- samples -----------------------------------------------------------------------------------------------

    def heard(self, task: Task, beat: Heartbeat, now: float, *, leads: bool) -> None:
        """Add a heartbeat. Call it before the session handles the heartbeat. ``leads``: the task is the leader."""
        bucket = self._bucket(task, beat.values, now, leads=leads)
        if bucket is None:
            return
        bucket.add(beat, now)
        if bucket.seconds >= self._budget.seconds(now - self._started, len(self._buckets), leads=leads):
            self._sample(task.name, bucket, leads=leads)
            self._buckets[task.name] = bucket.rest()

    def use(self) -> dict[str, MetricValues]:
        """Return the current use of tasks with running user processes, by task name."""
        return {name: bucket.use for name, bucket in self._buckets.items() if bucket.use is not None}

    def ended(self, task: Task, progress: Optional[TaskProgress], now: float, *, leads: bool) -> None:
        """Record the end of a user process, before the session handles it. ``progress``: its last progress."""
        bucket = self._bucket(task, {}, now, leads=leads)
        if bucket is not None:
            bucket.end(progress, now)
            self._close(task.name, leads=leads)

    def _bucket(self, task: Task, values: MetricValues, now: float, *, leads: bool) -> Optional[TaskBucket]:
        """Return the bucket for the newest start of a task, or None while no user process runs."""
        process = task.process
        if process is None or not process.is_running:
            return None
        bucket = self._buckets.get(task.name)
        if bucket is None or (bucket.attempt, bucket.generation) != (task.attempt, process.generation):
            if bucket is not None:
                self._close(task.name, leads=leads)
            bucket = self._buckets[task.name] = self._new_bucket(task, process, values, now)
        return bucket

    def _new_bucket(self, task: Task, process: ProcessState, counters: MetricValues, now: float) -> TaskBucket:
        """Create the bucket for a start of a task.

        The bucket continues after the last one of the same container, because the executor's counters continue.
        Counters of a new executor start at 0. If a former master may have seen the executor, the bucket starts with the
        current counters.
        """
        began = now if process.started_at is None else min(process.started_at, now)
        former = self._closed.get(task.name)
        if former is not None and former.attempt == task.attempt:
            began, before = max(began, min(former.heard, now)), former.fold.newest
        elif self._am_attempt == 1:
            before = NO_COUNTS
        else:
            before = counters
        return TaskBucket(task.attempt, process.generation, began, began, MetricFold(before, before))

    def _close(self, task: str, *, leads: bool) -> None:
        """Complete the task's bucket and add its sample."""
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
        """Complete the buckets of tasks whose last report was before this time. Default: the buckets of all tasks."""
        gone = [task for task, bucket in self._buckets.items() if bucket.heard < heard_before]
        for number, task in enumerate(gone):
            if task in self._buckets:  # the task may have ended while the event loop ran other tasks
                self._close(task, leads=False)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    # ---- segments ----------------------------------------------------------------------------------------------

    async def finish(self) -> bool:
        self.stop()
        await self._idle.wait()
        await self._sample_all()
        try:
            return await wait_with_timeout(self._write_all(), _LAST_WRITE)
        except asyncio.TimeoutError:
            return False

    async def _write_all(self) -> bool:
        return await self.write() and await self.write()  # first a segment whose write has failed, then the open one

    def _interval(self) -> float:
        age = loop_time() - self._started
        return min(max(_SOONEST, _PART * age), _LATEST)

    async def _until_due(self) -> bool:
        is_due = await super()._until_due()
        if is_due:
            await self._sample_all(loop_time() - _GONE)
        return is_due

    async def _store(self) -> None:
        if self._segment is None and self._lines:
            self._segment = self._complete()
        if self._segment is not None:
            await asyncio.to_thread(self._write, self.name, self._segment)
            self._segment = None

    def _complete(self) -> bytes:
        """Complete the open segment, and return the content of its file."""
        self._number += 1
        self.name = segment_name(self._am_attempt, self._number)
        header = SampleSegmentHeader(
            application_id=self._application_id,
            samples_left_out=self._left_out,
            metrics_left_out=self._metrics.left_out,
            such_as=self._metrics.such_as,
        )
        data = encode_header(header) + self._compressor.finish()
        self._budget.used(self._size, len(data))
        self._compressor, self._lines, self._size = SampleCompressor(), 0, 0
        return data


MOST_BYTES = 8 << 20  # for one application: a page reads it in a second or two, and checkpoints are much larger
_SOONEST_SAMPLE = 3.0  # seconds between two samples of a task at the beginning of a job
_LATER = 10.0  # minimum seconds between two samples in an older job
_BUDGET_PART = 0.02  # between these limits, the interval is this share of the job's age
_HORIZON = 7 * 86400.0  # seconds, see SeriesBudget
_TAIL = 2.0  # after _HORIZON, a job uses 1/_TAIL of the remaining bytes while its age grows by a factor of e
_LEADER = 8  # the leader gets 1/_LEADER of the bytes, because users look at its curves
_FIRST_BYTES = 150.0  # assumed size of a line before any is known
_FIRST_RATIO = 0.35  # assumed compression ratio before any is known


@attrs.define
class _Share:
    """A share of the size limit, for the leader or for the other tasks. Sizes of lines are before compression."""

    most: float  # size limit in bytes after compression
    lines: int = 0
    size: float = 0.0

    def seconds(self, elapsed: float, tasks: int, ratio: float) -> float:
        """Return the seconds between two samples of a task, if ``tasks`` tasks use this share."""
        left = self.most - self.size * ratio
        line = self.size / self.lines if self.lines else _FIRST_BYTES
        if left <= 0:
            return float("inf")
        soonest = min(max(_SOONEST_SAMPLE, _BUDGET_PART * elapsed), _LATER)
        # The remaining bytes must suffice while the job's age grows by this many factors of e.
        folds = _TAIL + max(0.0, math.log(_HORIZON / max(elapsed, 1.0)))
        return max(soonest, elapsed * folds * tasks * line * ratio / left)


class SeriesBudget:
    """Spreads the size limit of one application's series over time, for any number of tasks and any duration.

    The limit includes the series of former application masters. Up to the age of a week, the samples take the same
    number of bytes each time the job's age doubles. Later they take a constant share of the remaining bytes. So early
    samples are close together, later ones are further apart, and the limit is never reached.

    With a thousand tasks, each task has a sample every 10 seconds or more often in the first minutes. The interval is
    five minutes after an hour, two hours after a day, and half a day after a week.
    """

    def __init__(self, kept: int = 0, most: int = MOST_BYTES) -> None:
        """``kept``: bytes that former application masters have used."""
        self._most = most
        self._used = kept
        self._size = 0.0  # uncompressed size of the lines in ``_used``
        self._leader = _Share(most / _LEADER)
        self._others = _Share(most - most / _LEADER)
        self._ratio = _FIRST_RATIO
        for share in (self._leader, self._others):
            share.size = kept * share.most / most / self._ratio
        self._former = kept

    def seconds(self, elapsed: float, tasks: int, *, leads: bool) -> float:
        """Return the seconds between a task's samples. ``elapsed``: age of the job in seconds."""
        share = self._leader if leads else self._others
        return share.seconds(elapsed, 1 if leads else max(1, tasks - 1), self._ratio)

    def allows(self, pending: int) -> bool:
        """Return whether this number of additional bytes is within the limit."""
        return self._used + pending <= self._most

    def sampled(self, size: int, *, leads: bool) -> None:
        """Count a sample. ``size``: bytes of its line before compression."""
        share = self._leader if leads else self._others
        share.lines += 1
        share.size += size

    def used(self, size: int, compressed: int) -> None:
        """Count a segment. ``size``: bytes of its lines before compression."""
        self._used += compressed
        self._size += size
        if self._size:
            self._ratio = (self._used - self._former) / self._size


@attrs.define
class TaskBucket:
    """The heartbeats of a task since its last sample, from a single start of its processes.

    Times are the session's, in seconds. Each heartbeat represents the time since the previous one.
    """

    attempt: int
    generation: int
    begun: float
    heard: float
    fold: MetricFold
    beats: int = 0  # number of heartbeats and other reports
    progress: Optional[TaskProgress] = None
    use: Optional[MetricValues] = None  # from the newest heartbeat

    @property
    def seconds(self) -> float:
        return self.heard - self.begun

    def add(self, beat: Heartbeat, now: float) -> None:
        seconds = self._hear(now)
        self.use = present_use(beat.values, {} if self.use is None else self.fold.newest, seconds)
        self.fold.add(beat.values, seconds)
        self.progress = beat.progress or self.progress

    def end(self, progress: Optional[TaskProgress], now: float) -> None:
        """Record the end of the user process. ``progress``: last progress that the process reported."""
        self._hear(now)
        self.progress = progress or self.progress

    def _hear(self, now: float) -> float:
        """Record a report and return the seconds since the previous one."""
        seconds = max(0.0, now - self.heard)
        self.beats += 1
        self.heard += seconds
        return seconds

    def sample(self, task: str, time_ms: int, metrics: dict[str, float]) -> TaskSample:
        """Return the sample of this bucket. ``metrics``: the metrics that KeptMetrics keeps."""
        progress = self.progress
        return TaskSample(
            time_ms=time_ms,
            seconds=self.seconds,
            task=task,
            attempt=self.attempt,
            generation=self.generation,
            values={metric.name: value for metric in SHOWN if (value := self.fold.value(metric)) is not None},
            step=progress.step if progress else None,
            steps_per_second=progress.steps_per_second if progress else None,
            metrics=metrics,
        )

    def rest(self) -> TaskBucket:
        """Return the bucket that begins where this one ends."""
        fold = MetricFold(self.fold.newest, self.fold.newest)
        return TaskBucket(self.attempt, self.generation, self.heard, self.heard, fold, use=self.use)


MOST_OF_A_TASK = 50  # limit of metric names for each task
MOST_CHARACTERS = 100  # limit for the length of a name
_MOST_REMEMBERED = 1000  # limit of the counted names that are left out
_TOLD = 5  # number of examples of names that are left out


class KeptMetrics:
    """Keeps the first metric names that each task has reported, and counts the names that are left out.

    Programs may report thousands of metrics with arbitrary names.
    """

    def __init__(self) -> None:
        self._kept: dict[str, set[str]] = {}  # by task
        self._left_out: set[str] = set()

    def of(self, task: str, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics of a task that are kept."""
        if not metrics:
            return {}
        kept = self._kept.setdefault(task, set())
        for name in metrics:
            if name not in kept:
                if len(kept) < MOST_OF_A_TASK and len(name) <= MOST_CHARACTERS:
                    kept.add(sys.intern(name))  # shared, because a thousand tasks may have the same names
                elif len(self._left_out) < _MOST_REMEMBERED:
                    self._left_out.add(name[:MOST_CHARACTERS])
        return {name: value for name, value in metrics.items() if name in kept}

    @property
    def left_out(self) -> int:
        """Number of names that are left out, counted up to 1000."""
        return len(self._left_out)

    @property
    def such_as(self) -> list[str]:
        """Examples of names that are left out."""
        return sorted(self._left_out)[:_TOLD]
