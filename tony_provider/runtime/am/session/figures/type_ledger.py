"""What the tasks of each type asked for and used, over all their containers."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.session.containers.container_sizes import ContainerSizes
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Heartbeat, Task
from tony_provider.runtime.protocol.job_figures import TypeUse
from tony_provider.runtime.protocol.status import JobStatus, TaskState

_HOLD = (TaskState.STARTING, TaskState.REGISTERED, TaskState.RUNNING)  # a container
_MOST_WEIGHT = 60.0  # seconds that one heartbeat speaks for
_SUSTAINED = 30.0  # seconds: what processors are kept busy for less than that, the mean tells
_CROWDED = 90.0  # percent of a node's processors: with more, tasks may have to wait for them


@attrs.define
class _Mean:
    """Of values that held for some seconds each."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float, seconds: float) -> None:
        self.total += value * seconds
        self.seconds += seconds

    @property
    def value(self) -> Optional[float]:
        return round(self.total / self.seconds, 1) if self.seconds else None


@attrs.define
class _Ledger:
    """Of one type."""

    held: float = 0.0
    used: float = 0.0
    cpu: _Mean = attrs.field(factory=_Mean)
    most_cpu: Optional[float] = None
    sustained: dict[str, _Mean] = attrs.field(factory=dict)  # of each task, until it is of _SUSTAINED
    crowded: _Mean = attrs.field(factory=_Mean)  # 100 while a node is, else 0
    gpu: _Mean = attrs.field(factory=_Mean)
    most_rss: Optional[int] = None
    most_rss_task: Optional[str] = None
    most_gpu_bytes: Optional[int] = None

    def add_cpu(self, task: str, percent: float, seconds: float) -> None:
        self.cpu.add(percent, seconds)
        sustained = self.sustained.setdefault(task, _Mean())
        sustained.add(percent, seconds)
        if sustained.seconds >= _SUSTAINED:
            self.most_cpu = max(self.most_cpu or 0.0, sustained.value or 0.0)
            del self.sustained[task]


class TypeLedger:
    """Adds up what the tasks of each type use. Times are the session's, in seconds."""

    def __init__(self, state: SessionState, sizes: ContainerSizes) -> None:
        self._state = state
        self._sizes = sizes
        self._of = {name: _Ledger() for name in state.job.tasks}
        self._since = 0.0

    def begin(self, now: float) -> None:
        self._since = now

    def take_over(self, former: JobStatus, now: float) -> None:
        """Go on from the status that a former application master has left, also with the time since."""
        away = max(0.0, now - (former.updated_ms / 1000 - self._state.epoch))
        for use in former.use:
            if use.type in self._of:
                self._of[use.type] = _Ledger(
                    held=use.container_seconds,
                    used=use.used_seconds,
                    cpu=_mean(use.mean_cpu_percent, use.used_seconds),
                    most_cpu=use.most_cpu_percent,
                    crowded=_mean(use.crowded_percent, use.used_seconds),
                    gpu=_mean(use.mean_gpu_percent, use.used_seconds),
                    most_rss=use.most_rss_bytes,
                    most_rss_task=use.most_rss_task,
                    most_gpu_bytes=use.most_gpu_bytes,
                )
        for task in former.tasks:
            if task.type in self._of and task.state in _HOLD:
                self._of[task.type].held += away
                self._of[task.type].used += away if task.state is TaskState.RUNNING else 0.0

    def tick(self, now: float) -> None:
        """Put down the time since the last tick. Looks at every task."""
        seconds, self._since = max(0.0, now - self._since), now
        for task in self._state.tasks:
            if task.has_container:
                ledger = self._of[task.type]
                ledger.held += seconds
                if _runs(task):
                    ledger.used += seconds

    def heard(self, task: Task, beat: Heartbeat, now: float) -> None:
        """A heartbeat has come; to be called before the task knows of it."""
        if not _runs(task) or not beat.rss_bytes:
            return
        ledger = self._of[task.type]
        seconds = min(max(0.0, now - task.heard_at), _MOST_WEIGHT) if task.heard_at is not None else 0.0
        ledger.add_cpu(task.name, beat.cpu_percent, seconds)
        if beat.node_busy_percent is not None:
            ledger.crowded.add(100.0 if beat.node_busy_percent >= _CROWDED else 0.0, seconds)
        if ledger.most_rss is None or beat.rss_bytes > ledger.most_rss:
            ledger.most_rss, ledger.most_rss_task = beat.rss_bytes, task.name
        if beat.gpu_percent is not None:
            ledger.gpu.add(beat.gpu_percent, seconds)
        if beat.gpu_bytes is not None:
            ledger.most_gpu_bytes = max(ledger.most_gpu_bytes or 0, beat.gpu_bytes)

    def figures(self) -> list[TypeUse]:
        """By task type, in the job's order."""
        return [self._use(name, ledger) for name, ledger in self._of.items()]

    def _use(self, name: str, ledger: _Ledger) -> TypeUse:
        spec = self._sizes.of(name)
        return TypeUse(
            type=name,
            tasks=sum(1 for task in self._state.of_type[name] if not task.vacant),
            container_seconds=round(ledger.held, 1),
            memory_bytes=spec.memory << 20,
            vcores=spec.vcores,
            gpus=spec.gpus,
            used_seconds=round(ledger.used, 1),
            most_rss_bytes=ledger.most_rss,
            most_rss_task=ledger.most_rss_task,
            mean_cpu_percent=ledger.cpu.value,
            most_cpu_percent=ledger.most_cpu,
            crowded_percent=ledger.crowded.value,
            mean_gpu_percent=ledger.gpu.value,
            most_gpu_bytes=ledger.most_gpu_bytes,
        )


def _runs(task: Task) -> bool:
    return task.process is not None and task.process.started_at is not None and task.process.runs


def _mean(value: Optional[float], seconds: float) -> _Mean:
    return _Mean() if value is None else _Mean(value * seconds, seconds)
