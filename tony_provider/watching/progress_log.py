"""The lines of a task's log about its job's progress: what changed, and now and then how far it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TaskStatus
from tony_provider.runtime.quantities import left, number, percent, size, speed, steps

PROGRESS_INTERVAL = 10.0  # seconds between progress lines, at least
MAX_ROWS = 20  # of one task table; a large gang is summed up below it

_NOT_TOGETHER = (
    JobState.WAITING,
    JobState.STARTING,
    JobState.RESTARTING,
    JobState.SUSPENDED,
    JobState.RECOVERING,
)
_HEADER = ("task", "state", "node", "step", "steps/s", "memory")


class ProgressLog:
    """Turns the statuses of one job into lines for the task's log.

    Takes each status seen and gives the lines to log. Says nothing twice.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._application_line = ""
        self._job_line = ""
        self._message = ""
        self._generation = 0
        self._tasks: dict[str, tuple[TaskState, int, int, str | None]] = {}
        self._step: int | None = None
        self._progress_at: float | None = None
        self._warnings: list[str] = []

    def lines(self, application: Application, status: JobStatus | None) -> list[str]:
        lines = [] if _says_all(application, status) else self._application_lines(application)
        if status is not None:
            lines += self._job_lines(status)
            lines += self._generation_lines(status)
            lines += self._task_lines(status)
            lines += self._progress_lines(status)
            lines += self._warning_lines(status)
        return lines

    def _application_lines(self, application: Application) -> list[str]:
        line = f"{application.id} is {application.state}"
        if application.queue:
            line += f" in queue {application.queue}"
        if line == self._application_line:
            return []
        self._application_line = line
        return [line]

    def _job_lines(self, status: JobStatus) -> list[str]:
        line = f"Job is {_state(status)}"
        if line == self._job_line and status.message == self._message:
            return []
        # Of a success the state says all; why a job fails is said when it begins to end, and once in its error.
        is_new = status.message != self._message and status.state is not JobState.SUCCEEDED
        self._job_line, self._message = line, status.message
        return [f"{line}: {status.message}" if status.message and is_new else line]

    def _generation_lines(self, status: JobStatus) -> list[str]:
        """From which step the tasks train, each time that they were brought together."""
        if status.state in _NOT_TOGETHER or status.generation <= self._generation:
            return []
        self._generation = status.generation
        number = status.generation_after_restart
        again = f" (generation {number})" if number is not None else ""
        if status.resumed is not None:
            return [f"The job resumes from {status.resumed.label}{again}"]
        if status.generation == 1:
            return []
        return [f"Training from the beginning{again}: no checkpoint was on the store"]

    def _task_lines(self, status: JobStatus) -> list[str]:
        seen = {task.name: (task.state, task.attempt, task.start, task.node) for task in status.tasks}
        changed = [task for task in status.tasks if self._tasks.get(task.name) != seen[task.name]]
        self._tasks = seen
        if not changed:
            return []
        # A small gang is shown whole: a task that is not there would look lost.
        return task_table(status.tasks if len(status.tasks) <= MAX_ROWS else changed, status.tasks)

    def _warning_lines(self, status: JobStatus) -> list[str]:
        """Those that are new."""
        new = [f"Warning: {each}" for each in status.warnings if each not in self._warnings]
        self._warnings = status.warnings
        return new

    def _progress_lines(self, status: JobStatus) -> list[str]:
        if status.step is None or status.step == self._step:
            return []
        now = self._clock()
        recent = self._progress_at is not None and now - self._progress_at < PROGRESS_INTERVAL
        if recent and not status.state.is_final:
            return []
        self._step, self._progress_at = status.step, now
        return [progress_line(status)]


def _says_all(application: Application, status: JobStatus | None) -> bool:
    """Whether the job's own word makes the cluster's superfluous: that an application has finished is no news then."""
    return application.state is ApplicationState.FINISHED and status is not None and status.state is JobState.SUCCEEDED


def progress_line(status: JobStatus) -> str:
    """Such as ``step 120 of 900 (13 %), 8.4 steps/s, about 1 min 32 s left, loss=0.31, checkpoint 100``."""
    line = f"step {steps(status.step or 0, status.total_steps)}"
    if status.step is not None and status.total_steps:
        line += f" ({percent(status.step / status.total_steps)})"
    if status.steps_per_second is not None:
        line += f", {speed(status.steps_per_second)}"
    forecast = left(status.step, status.total_steps, status.steps_per_second)
    if forecast and status.state is JobState.RUNNING:
        line += f", {forecast}"
    if metrics := " ".join(f"{name}={number(value)}" for name, value in sorted(status.metrics.items())):
        line += f", {metrics}"
    if status.checkpoint is not None:
        step = status.checkpoint.step
        line += f", {status.checkpoint.label}" if step is None else f", checkpoint {step}"
    return line


def task_table(tasks: Sequence[TaskStatus], everyone: Sequence[TaskStatus]) -> list[str]:
    """The rows of a text table of ``tasks``, under a header.

    Where these are not all of the job's, a last line sums up ``everyone``.
    """
    shown = tasks[:MAX_ROWS]
    lines = _aligned([_HEADER, *map(_row, shown)])
    if len(shown) < len(everyone):
        counts = Counter(task.state.value for task in everyone)
        lines.append(f"of {len(everyone)} tasks: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    return lines


def _row(task: TaskStatus) -> tuple[str, ...]:
    progress = task.progress or TaskProgress()
    return (
        task.name,
        _task_state(task),
        task.node or "-",
        steps(progress.step) if task.progress else "-",
        number(progress.steps_per_second) if progress.steps_per_second is not None else "-",
        size(task.rss_bytes) if task.rss_bytes else "-",
    )


def _state(status: JobStatus) -> str:
    """Such as ``RUNNING``, or ``RESTARTING (restart 2)``."""
    if status.state is JobState.RECOVERING:
        return f"{status.state.value} (its application master was started again, its tasks go on)"
    return f"{status.state.value} (restart {status.restarts})" if status.restarts else status.state.value


def _task_state(task: TaskStatus) -> str:
    """Such as ``RUNNING``, ``RUNNING (start 3)``, or, after a lost container, ``RUNNING (start 4, container 2)``."""
    counts = (("start", task.start), ("container", task.attempt))
    told = ", ".join(f"{what} {count}" for what, count in counts if count > 1)
    return f"{task.state.value} ({told})" if told else task.state.value


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
