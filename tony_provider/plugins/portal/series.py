"""Samples of tasks as columns, as charts take them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from tony_provider.advice.metric_names import ranked
from tony_provider.runtime.history.task_sample import TaskSample

_SAMPLES = 1000  # of a task, at most
_METRICS = 100  # of a task, those that were reported most often: a master keeps 50
_OTHERS = ("task", "metrics")


def columns(samples: Iterable[TaskSample], tasks: Sequence[str] | None, most: int) -> tuple[dict[str, Any], list[str]]:
    """The columns of each task, and the tasks that were left out: all but the first ``most``, or all but ``tasks``.

    A column is as long as ``time_ms``, and is there where anything is known; user metrics are columns in ``metrics``.
    """
    by_task: dict[str, list[TaskSample]] = defaultdict(list)
    for sample in samples:
        by_task[sample.task].append(sample)
    chosen = [task for task in tasks if task in by_task] if tasks else list(by_task)[:most]
    wanted = dict.fromkeys(chosen)  # an address may name one thousands of times
    return {task: _columns(_thinned(by_task[task])) for task in wanted}, [
        task for task in by_task if task not in wanted
    ]


def _columns(samples: Sequence[TaskSample]) -> dict[str, Any]:
    names = [field.name for field in attrs.fields(TaskSample) if field.name not in _OTHERS]
    found: dict[str, Any] = {name: [getattr(each, name) for each in samples] for name in names}
    found = {name: column for name, column in found.items() if any(value is not None for value in column)}
    reported = Counter(name for each in samples for name in each.metrics)
    metrics = ranked(name for name, _ in reported.most_common(_METRICS))
    return {**found, "metrics": {name: [each.metrics.get(name) for each in samples] for name in metrics}}


def _thinned(samples: list[TaskSample]) -> list[TaskSample]:
    """So many of them, the first and the last one included."""
    if len(samples) <= _SAMPLES:
        return samples
    return [samples[round(at * (len(samples) - 1) / (_SAMPLES - 1))] for at in range(_SAMPLES)]
