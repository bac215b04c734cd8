"""A job's specification and what became of it, as MLflow takes parameters, metrics and tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from tony_provider.cluster.history.job_summary import Curve
from tony_provider.cluster.history.keep_specification import Mask, as_shown
from tony_provider.operators.telemetry.ended_try import EndedTry
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.spec.model import JobSpec, TaskSpec
from tony_provider.watching.open_mlflow_run import APPLICATION_TAG, REASON_TAG, VERDICT_TAG

_LONGEST_NAME = 250  # characters; so the next two. What older servers take, too
_LONGEST_PARAMETER = 500
_LONGEST_TAG = 5000
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]", re.ASCII)


@attrs.frozen
class Point:
    """A value of a metric."""

    name: str
    value: float
    time_ms: int  # epoch
    step: int


def parameters(job: JobSpec, mask: Mask) -> dict[str, str]:
    """What the job says itself, by the paths of its keys.

    Defaults are left out, but for how many instances of a type there are, by which trainings are compared.
    """
    of_task = to_plain(TaskSpec(command=""))
    del of_task["instances"]
    defaults = to_plain(JobSpec(framework="", tasks={})) | {"tasks": dict.fromkeys(job.tasks, of_task)}
    given = _differing(as_shown(to_plain(job), mask), defaults)
    return {name(path): str(value)[:_LONGEST_PARAMETER] for path, value in given}


def _differing(value: Any, default: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Values that are not the default, with their paths."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            beside = default.get(key) if isinstance(default, Mapping) else None
            yield from _differing(below, beside, f"{path}.{key}" if path else str(key))
    elif value != default and value not in (None, [], ""):
        yield path, value


def points(ended: EndedTry) -> list[Point]:
    """What the program has reported, and what the job cost; curves where the summary has them."""
    time_ms, status = ended.finished_ms or ended.started_ms or 0, ended.status
    step = (status and status.step) or 0
    values: dict[str, float | None] = dict(status.metrics) if status is not None else {}
    curves = ended.summary.curves if ended.summary is not None else []
    for curve in curves:
        values.pop(curve.metric, None)
    values |= {
        "tony.total_seconds": ended.total_seconds,
        "tony.waiting_seconds": ended.waiting_seconds,
        "tony.training_seconds": ended.training_seconds,
        "tony.steps_per_second": status.steps_per_second if status is not None else None,
        "tony.restarts": status.restarts if status is not None else None,
    }
    newest = [Point(name(each), value, time_ms, step) for each, value in values.items() if value is not None]
    return [*newest, *(point for curve in curves for point in _of_curve(curve, ended.started_ms or 0))]


def _of_curve(curve: Curve, started_ms: int) -> Iterator[Point]:
    for step, seconds, value in zip(curve.steps, curve.seconds, curve.values, strict=True):
        yield Point(name(curve.metric), float(value), started_ms + int(seconds * 1000), step)


def verdict_tags(ended: EndedTry) -> dict[str, str]:
    """Tags that say how the try has ended, and where what it has left is."""
    status, checkpoint = ended.status, ended.status.checkpoint_dir if ended.status is not None else None
    found = {
        APPLICATION_TAG: ended.application_id,
        VERDICT_TAG: ended.verdict.value,
        REASON_TAG: ended.reason,
        "tony.queue": ended.queue,
        "tony.model_dir": (status.model_dir if status is not None else None) or "",
        "tony.checkpoint_dir": checkpoint or "",
        "tony.try_number": str(ended.run.try_number),
    }
    return {key: value[:_LONGEST_TAG] for key, value in found.items()}


def name(text: str) -> str:
    """The text as a name that MLflow takes."""
    return _NOT_IN_NAMES.sub("_", text)[:_LONGEST_NAME]
