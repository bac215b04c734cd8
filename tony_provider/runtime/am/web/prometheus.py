"""``GET metrics``: the job's status in Prometheus' text exposition format 0.0.4.

The number of series is limited to ``MOST_SERIES``. Series that every task has come before values that programs report.
An additional series counts the omitted ones.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain, islice
from typing import Callable, Optional, Union

import attrs

from tony_provider.runtime.am.web.server import HttpRequest, HttpResponse
from tony_provider.runtime.protocol.metrics import IN_STATUS, Unit
from tony_provider.runtime.protocol.metrics import PrometheusFamily as Family
from tony_provider.runtime.protocol.status import JobState, JobStatus, ProcessStatus, TaskStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 20_000

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Number = Union[int, float]


@attrs.frozen
class Sample:
    """One series with its present value."""

    family: Family
    value: Number
    labels: tuple[tuple[str, str], ...] = ()


JOB_INFO = Family("tony_job_info", "gauge", "Always 1; its labels say which application of which job this is.")
JOB_STATE = Family("tony_job_state", "gauge", "1 for the state that the job is in, 0 for the others.")
PROGRESS = Family("tony_job_progress_ratio", "gauge", "How far the job is, from 0 to 1.")
START_TIME = Family("tony_job_start_time_seconds", "gauge", "When the job began, since the epoch.")
GENERATION = Family("tony_job_generation", "gauge", "How often the tasks were brought together.")
RESTARTS = Family("tony_job_restarts_total", "counter", "Restarts, of the gang or of single tasks.")
MASTER_ATTEMPT = Family("tony_job_master_attempt", "gauge", "Which application master of the application it is.")
CHECKPOINT_STEP = Family("tony_job_checkpoint_step", "gauge", "Step of the newest committed checkpoint.")
RESUMED_STEP = Family("tony_job_resumed_step", "gauge", "Step that the generation went on from.")
WARNINGS = Family("tony_job_warnings", "gauge", "Warnings so far.")
LEFT_OUT = Family("tony_series_left_out", "gauge", "Series that this page has no room for.")
TASK_STATE = Family("tony_task_state", "gauge", "Always 1; the label state is the one that the task is in.")
ATTEMPT = Family("tony_task_attempt", "gauge", "Which of its containers the task has, counted from 1.")
STARTS = Family("tony_task_starts_total", "counter", "Starts of the task's user processes.")
HEARTBEAT = Family("tony_task_heartbeat_timestamp_seconds", "gauge", "When its executor was last heard of.")
STEP = Family("tony_task_step", "gauge", "The step that its program has reported last.")
TOTAL_STEPS = Family("tony_task_steps_planned", "gauge", "How many steps its program has said that there will be.")
SPEED = Family("tony_task_steps_per_second", "gauge", "Its speed.")
METRIC = Family("tony_task_metric", "gauge", "What its program has reported last under the name in the label metric.")


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
    shown.append(Sample(LEFT_OUT, sum(1 for _ in samples)))
    families: dict[Family, list[Sample]] = {}
    for sample in shown:
        families.setdefault(sample.family, []).append(sample)
    return "".join(f"{line}\n" for family, found in families.items() for line in _lines(family, found))


def _lines(family: Family, samples: list[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in samples:
        labels = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sample.labels)
        yield (
            f"{family.name}{{{labels}}} {_number(sample.value)}" if labels else f"{family.name} {_number(sample.value)}"
        )


def _number(value: Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _known(family: Family, value: Optional[Number], *labels: tuple[str, str]) -> Iterator[Sample]:
    """Yield a sample if the value is known. An unknown value is not 0."""
    if value is not None:
        yield Sample(family, value, labels)


def _of_job(status: JobStatus) -> Iterator[Sample]:
    yield Sample(JOB_INFO, 1, (("application_id", status.application_id), ("job_name", status.name)))
    for state in JobState:
        yield Sample(JOB_STATE, int(state is status.state), (("state", state.value),))
    yield Sample(PROGRESS, status.progress)
    yield from _known(START_TIME, status.started_ms / 1000 if status.started_ms else None)
    yield Sample(GENERATION, status.generation)
    yield Sample(RESTARTS, status.restarts)
    yield Sample(MASTER_ATTEMPT, status.am_attempt)
    yield from _known(CHECKPOINT_STEP, status.checkpoint_step)
    yield from _known(RESUMED_STEP, status.resumed_step)
    yield Sample(WARNINGS, len(status.warnings))


def _of_tasks(status: JobStatus) -> Iterator[Sample]:
    for task in status.tasks:
        name = ("task", task.name)
        yield Sample(TASK_STATE, 1, (name, ("state", task.state.value)))
        yield Sample(ATTEMPT, task.attempt, (name,))
        yield Sample(STARTS, task.start, (name,))
        yield from _known(HEARTBEAT, None if task.heartbeat_ms is None else task.heartbeat_ms / 1000, name)
        for process, labels in _processes(task):
            for metric in IN_STATUS:
                if metric.prometheus is not None:
                    value = getattr(process, metric.name)
                    is_known = value is not None and metric.unit is Unit.CORE_PERCENT
                    yield from _known(metric.prometheus, value / 100 if is_known else value, *labels)
            if process.progress is not None:
                yield Sample(STEP, process.progress.step, labels)
                yield from _known(TOTAL_STEPS, process.progress.total_steps, *labels)
                yield from _known(SPEED, process.progress.steps_per_second, *labels)


def _of_programs(status: JobStatus) -> Iterator[Sample]:
    for task in status.tasks:
        for process, labels in _processes(task):
            for metric, value in (process.progress.metrics if process.progress else {}).items():
                yield Sample(METRIC, value, (*labels, ("metric", metric)))


def _processes(task: TaskStatus) -> Iterator[tuple[Union[TaskStatus, ProcessStatus], tuple[tuple[str, str], ...]]]:
    """Yield the user processes of a task with their labels. Local rank 0 is the task's own process."""
    yield task, (("task", task.name), ("local_rank", "0"))
    for process in task.further:
        yield process, (("task", task.name), ("local_rank", str(process.local_rank)))
