"""``GET metrics``: the job's status in Prometheus' text exposition format 0.0.4.

The number of series is limited to ``MOST_SERIES``. If there are more, metrics that programs report are omitted first.
An additional series counts the omitted series.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus
from itertools import chain, islice
from typing import Callable, Optional, TypeVar, Union

from tony_provider.runtime.am.web.server import HttpRequest, HttpResponse
from tony_provider.runtime.protocol.metrics import IN_STATUS, Family, Metric, Unit
from tony_provider.runtime.protocol.status import JobState, JobStatus, ProcessStatus, TaskStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 20_000

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Number = Union[int, float]
T = TypeVar("T")
Process = Union[TaskStatus, ProcessStatus]
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Family, Labels, Number]
"""One series with its present value."""

JOB_INFO = Family("tony_job_info", "Always 1; the labels identify the job and its application.")
JOB_STATE = Family("tony_job_state", "1 for the state that the job is in, 0 for the others.")
TASK_STATE = Family("tony_task_state", "Always 1; the label state contains the state of the task.")
METRIC = Family("tony_task_metric", "Last value that the program reported for the metric in the label metric.")
LEFT_OUT = Family("tony_series_left_out", "Number of series left out because of the size limit of this page.")

# None means that the value is unknown, so it has no series.
OF_JOB: Sequence[tuple[Family, Callable[[JobStatus], Optional[Number]]]] = (
    (Family("tony_job_progress_ratio", "Progress of the job, from 0 to 1."), lambda job: job.progress),
    (
        Family("tony_job_start_time_seconds", "Start time of the job, in seconds since the epoch."),
        lambda job: job.started_ms / 1000 if job.started_ms else None,
    ),
    (Family("tony_job_generation", "Number of the current generation."), lambda job: job.generation),
    (Family("tony_job_restarts_total", "Restarts, of the gang or of single tasks."), lambda job: job.restarts),
    (
        Family("tony_job_master_attempt", "Attempt number of the application master, counted from 1."),
        lambda job: job.am_attempt,
    ),
    (Family("tony_job_checkpoint_step", "Step of the newest committed checkpoint."), lambda job: job.checkpoint_step),
    (Family("tony_job_resumed_step", "Step that the current generation resumed from."), lambda job: job.resumed_step),
    (Family("tony_job_warnings", "Number of warnings so far."), lambda job: len(job.warnings)),
)
OF_TASK: Sequence[tuple[Family, Callable[[TaskStatus], Optional[Number]]]] = (
    (
        Family("tony_task_attempt", "Number of the task's current container, counted from 1."),
        lambda task: task.attempt,
    ),
    (Family("tony_task_starts_total", "Starts of the task's user processes."), lambda task: task.start),
    (
        Family("tony_task_heartbeat_timestamp_seconds", "Time of the executor's last message, since the epoch."),
        lambda task: None if task.heartbeat_ms is None else task.heartbeat_ms / 1000,
    ),
)


def _measured(metric: Metric, process: Process) -> Optional[Number]:
    value: Optional[Number] = getattr(process, metric.name, None)
    return value / 100 if value is not None and metric.unit is Unit.CORE_PERCENT else value


OF_PROCESS: Sequence[tuple[Family, Callable[[Process], Optional[Number]]]] = (
    *((metric.prometheus, partial(_measured, metric)) for metric in IN_STATUS if metric.prometheus),
    (
        Family("tony_task_step", "Last step that the program reported."),
        lambda process: process.progress.step if process.progress else None,
    ),
    (
        Family("tony_task_steps_planned", "Total number of steps that the program reported."),
        lambda process: process.progress.total_steps if process.progress else None,
    ),
    (
        Family("tony_task_steps_per_second", "Steps per second of the program."),
        lambda process: process.progress.steps_per_second if process.progress else None,
    ),
)


class Metrics:
    """The HTTP handler of the metrics. Requires a running event loop."""

    def __init__(self, status: Callable[[], JobStatus]) -> None:
        self._status = status

    async def page(self, request: HttpRequest) -> HttpResponse:
        text = await asyncio.to_thread(exposition, self._status())  # slow with thousands of tasks
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, text.encode("utf-8", "replace"))


def exposition(status: JobStatus, most: int = MOST_SERIES) -> str:
    """Return the page with at most ``most`` series, and an additional one that counts omitted series."""
    samples = chain(_of_job(status), _of_tasks(status), _of_programs(status))
    shown = list(islice(samples, most))
    shown.append((LEFT_OUT, (), sum(1 for _ in samples)))
    lines: dict[Family, list[str]] = {}
    for family, labels, value in shown:
        text = ",".join(f'{name}="{label.translate(_ESCAPED)}"' for name, label in labels)
        series = f"{family.name}{{{text}}}" if labels else family.name
        if family not in lines:
            lines[family] = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines[family].append(f"{series} {_number(value)}")
    return "".join(f"{line}\n" for found in lines.values() for line in found)


def _number(value: Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _of_job(status: JobStatus) -> Iterator[Sample]:
    yield JOB_INFO, (("application_id", status.application_id), ("job_name", status.name)), 1
    for state in JobState:
        yield JOB_STATE, (("state", state.value),), int(state is status.state)
    yield from _known(OF_JOB, status, ())


def _of_tasks(status: JobStatus) -> Iterator[Sample]:
    for task in status.tasks:
        name = ("task", task.name)
        yield TASK_STATE, (name, ("state", task.state.value)), 1
        yield from _known(OF_TASK, task, (name,))
        for process, labels in _processes(task):
            yield from _known(OF_PROCESS, process, labels)


def _known(
    rows: Sequence[tuple[Family, Callable[[T], Optional[Number]]]], source: T, labels: Labels
) -> Iterator[Sample]:
    for family, read in rows:
        value = read(source)
        if value is not None:
            yield family, labels, value


def _of_programs(status: JobStatus) -> Iterator[Sample]:
    for task in status.tasks:
        for process, labels in _processes(task):
            for metric, value in (process.progress.metrics if process.progress else {}).items():
                yield METRIC, (*labels, ("metric", metric)), value


def _processes(task: TaskStatus) -> Iterator[tuple[Process, Labels]]:
    """Yield the user processes of a task with their labels. Local rank 0 is the task's own process."""
    yield task, (("task", task.name), ("local_rank", "0"))
    for process in task.further:
        yield process, (("task", task.name), ("local_rank", str(process.local_rank)))
