"""What a task has done since its last sample."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.history.container_use import ContainerUse, Counters, more
from tony_provider.runtime.am.session.state.task import Heartbeat
from tony_provider.runtime.history.task_sample import TaskSample
from tony_provider.runtime.protocol.status import TaskProgress


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
            read_bytes=more(self.before.read, self.newest.read),
            written_bytes=more(self.before.written, self.newest.written),
            received_bytes=more(self.before.received, self.newest.received),
            sent_bytes=more(self.before.sent, self.newest.sent),
            gpu_percent=self.gpu_seconds / self.gpu_heard if self.gpu_heard else None,
            gpu_bytes=self.gpu_bytes,
            step=progress.step if progress else None,
            steps_per_second=progress.steps_per_second if progress else None,
            metrics=metrics,
        )

    def rest(self) -> TaskBucket:
        """The one that begins where this one has ended."""
        return TaskBucket(self.attempt, self.generation, self.heard, self.heard, self.newest, self.newest, use=self.use)
