"""Limits of the values in a job's status, because a job can write any value to its status file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import attrs

from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.status import Failure, JobStatus, TaskProgress, TaskStatus

MOST_WARNINGS = 200
_MANY = limits.MOST_OUTPUTS  # the same limit for inputs and task types
_TEXT = 4 << 10  # characters of a warning, a name or a URI
_LONG = 64 << 10  # characters of a message, which ends with program output


def bounded_status(status: JobStatus) -> JobStatus:
    """Return the status with values beyond the limits removed or truncated."""
    return attrs.evolve(
        status,
        name=status.name[:_TEXT],
        message=status.message[:_LONG],
        tasks=[_task(each) for each in status.tasks],
        model_dir=status.model_dir if len(status.model_dir or "") <= _TEXT else None,
        failure=_failure(status.failure) if status.failure is not None else None,
        warnings=_lines(status.warnings, "warnings"),
        troubles=_lines(status.troubles, "troubles"),
        inputs=status.inputs[:_MANY],
        outputs=[each for each in status.outputs[:_MANY] if len(each.name) + len(each.uri) <= _TEXT],
        use=status.use[:_MANY],
    )


def _lines(lines: Sequence[str], what: str) -> list[str]:
    more = len(lines) - MOST_WARNINGS
    return [*(each[:_TEXT] for each in lines[:MOST_WARNINGS]), *([f"{more} more {what} are left out"] * (more > 0))]


def _failure(failure: Failure) -> Failure:
    return attrs.evolve(failure, message=failure.message[:_LONG], task=failure.task and failure.task[:_TEXT])


def _task(task: TaskStatus) -> TaskStatus:
    """Return the task's status within the limits. Reuse the object if it is within them: there can be thousands."""
    found = task
    if task.progress is not None and _is_large(task.progress):
        found = attrs.evolve(found, progress=_progress(task.progress))
    if len(task.activity) > _TEXT:
        found = attrs.evolve(found, activity=task.activity[:_TEXT])
    if len(task.further) > _MANY or any(each.progress and _is_large(each.progress) for each in task.further):
        bounded = (attrs.evolve(each, progress=each.progress and _progress(each.progress)) for each in task.further)
        found = attrs.evolve(found, further=list(islice(bounded, _MANY)))
    return found


def _is_large(progress: TaskProgress) -> bool:
    names = progress.metrics
    return len(names) > limits.MOST_METRICS or any(len(name) > limits.LONGEST_NAME for name in names)


def _progress(progress: TaskProgress) -> TaskProgress:
    short = ((name, value) for name, value in progress.metrics.items() if len(name) <= limits.LONGEST_NAME)
    return attrs.evolve(progress, metrics=dict(islice(short, limits.MOST_METRICS)))
