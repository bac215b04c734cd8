"""A job's status within bounds, as Airflow's side takes it: a job may write in its place what it likes.

What is shown line by line, compared with what came before, and kept in Airflow's database is bounded here, and once.
Masters of this provider stay far below these limits. A status is refused if it names places of other jobs, or if a
metric has the name of a key of Airflow's serialization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import attrs

from tony_provider.runtime.protocol import limits
from tony_provider.runtime.protocol.own_places import foreign_places
from tony_provider.runtime.protocol.status import Failure, JobStatus, TaskProgress, TaskStatus
from tony_provider.runtime.reserved_keys import RESERVED_KEYS, WHY

MOST_WARNINGS = 200
_MANY = limits.MOST_OUTPUTS  # and as many inputs and task types
_TEXT = 4 << 10  # characters of a warning, a name or a URI
_MOST_FOREIGN = 5  # foreign places that an error names
_LONG = 64 << 10  # of a message, which ends with what a program has printed


class StatusRefused(ValueError):  # noqa: N818 - named for what is wrong
    """A job's status has a value that no honest job reports; the message names each key and its value."""


def checked(status: JobStatus, application_dir: str | None) -> JobStatus:
    """Return the status within bounds, after a check that it names only places of its own application and training.

    ``application_dir``: URI of the application's directory. If it is None, because the directory is unknown, leave out
    all places that the status names. Raises StatusRefused.
    """
    if any(RESERVED_KEYS & metrics.keys() for metrics in _all_metrics(status)):
        raise StatusRefused(f"a metric's name {WHY}")
    if application_dir is None:
        return attrs.evolve(bounded(status), model_dir=None, export=None, checkpoint=None, resumed=None, inputs=[])
    if foreign := foreign_places(status, application_dir):
        raise StatusRefused("; ".join(map(str, foreign[:_MOST_FOREIGN])))
    return bounded(status)


def _all_metrics(status: JobStatus) -> Iterator[Mapping[str, float]]:
    for task in status.tasks:
        for progress in (task.progress, *(each.progress for each in task.further)):
            if progress is not None:
                yield progress.metrics


def bounded(status: JobStatus) -> JobStatus:
    """The status with what is beyond the bounds left out, or cut."""
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
    """Itself where nothing of it is too much: there are thousands."""
    found = task
    if task.progress is not None and _is_large(task.progress):
        found = attrs.evolve(found, progress=_progress(task.progress))
    if len(task.activity) > _TEXT:
        found = attrs.evolve(found, activity=task.activity[:_TEXT])
    return found


def _is_large(progress: TaskProgress) -> bool:
    names = progress.metrics
    return len(names) > limits.MOST_METRICS or any(len(name) > limits.LONGEST_NAME for name in names)


def _progress(progress: TaskProgress) -> TaskProgress:
    short = ((name, value) for name, value in progress.metrics.items() if len(name) <= limits.LONGEST_NAME)
    return attrs.evolve(progress, metrics=dict(islice(short, limits.MOST_METRICS)))
