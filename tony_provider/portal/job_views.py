"""Convert job data for the portal's pages: ordered metrics, specification differences, sample columns and log tails."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.advice.metric_names import ranked
from tony_provider.cluster.records.summary import JobSummary, tensorboard_command
from tony_provider.portal.stored_jobs import Row
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.text import end_of_log, first_line
from tony_provider.runtime.history.samples import TaskSample
from tony_provider.runtime.jobspec.problems import flattened
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN
from tony_provider.watching.task_output import displayed_line


def plain_in_order(summary: JobSummary) -> dict[str, Any]:
    """Return a summary as plain data, with its metrics and curves in the order of ``ranked``."""
    plain: dict[str, Any] = to_plain(summary)
    curves = {each["metric"]: each for each in plain["curves"]}
    metrics = {name: plain["metrics"][name] for name in ranked(plain["metrics"])}
    return {**plain, "metrics": metrics, "curves": [curves[name] for name in ranked(curves)]}


def differences(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the paths at which the documents differ, such as ``tasks.worker.memory``, with the value in each document.

    The value is None if a document has none at this path.
    """
    flat = [flattened(document) for document in documents]
    paths = sorted({path for each in flat for path in each})
    values = {path: [each.get(path) for each in flat] for path in paths}
    return {path: found for path, found in values.items() if any(each != found[0] for each in found)}


def entries(document: Mapping[str, Any]) -> int:
    """Return how many paths of a document have a value."""
    return len(flattened(document))


_SAMPLES = 1000  # limit for one task
_METRICS = 100  # limit for one task, by how often a metric was reported; a master keeps 50
_OTHERS = ("task", "values", "metrics")


def sample_columns(
    samples: Iterable[TaskSample], tasks: Sequence[str] | None, most: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the sample columns of each chosen task, and the tasks that were left out.

    The chosen tasks are ``tasks``, or the first ``most`` if ``tasks`` is empty. Each column is as long as ``time_ms``.
    Columns without any value are omitted. User metrics are columns in ``metrics``.
    """
    by_task: dict[str, list[TaskSample]] = defaultdict(list)
    for sample in samples:
        by_task[sample.task].append(sample)
    chosen = [task for task in tasks if task in by_task] if tasks else list(by_task)[:most]
    wanted = dict.fromkeys(chosen)  # a URL may repeat a name thousands of times
    return {task: _columns(_thinned(by_task[task])) for task in wanted}, [
        task for task in by_task if task not in wanted
    ]


METRICS = [
    {
        "name": metric.name,
        "title": metric.title,
        "chart": metric.chart,
        "unit": metric.unit.value,
        "counted": metric.is_counter,
        "in_status": metric in IN_STATUS,
    }
    for metric in SHOWN
]
"""The metrics of samples and status, for the portal's pages. Samples of a counted metric are sums over ``seconds``."""


def _columns(samples: Sequence[TaskSample]) -> dict[str, Any]:
    names = [field.name for field in attrs.fields(TaskSample) if field.name not in _OTHERS]
    found: dict[str, Any] = {name: [getattr(each, name) for each in samples] for name in names}
    found.update({metric.name: [each.values.get(metric.name) for each in samples] for metric in SHOWN})
    found = {name: column for name, column in found.items() if any(value is not None for value in column)}
    reported = Counter(name for each in samples for name in each.metrics)
    metrics = ranked(name for name, _ in reported.most_common(_METRICS))
    return {**found, "metrics": {name: [each.metrics.get(name) for each in samples] for name in metrics}}


def _thinned(samples: list[TaskSample]) -> list[TaskSample]:
    """Return at most ``_SAMPLES`` evenly spaced samples, including the first and the last one."""
    if len(samples) <= _SAMPLES:
        return samples
    return [samples[round(at * (len(samples) - 1) / (_SAMPLES - 1))] for at in range(_SAMPLES)]


CUT = "… what was printed before is left out\n"
_LONGEST = 16 << 10  # limit for the characters of a line


def end_of_output(data: bytes, tail: int) -> str:
    """Return the last lines of a log, at most ``tail`` bytes, as a terminal shows them; ``CUT`` marks omitted output.

    If the log is longer than ``tail``, ``data`` must have one byte more: it shows whether the first line is complete.
    """
    lines = end_of_log(data, tail).split(b"\n")
    text = "\n".join(displayed_line(line, _LONGEST) for line in lines)
    return CUT + text if len(data) > tail else text


def first_lines(plain: Any) -> Any:
    """Return plain data with each text reduced to its first line."""
    if isinstance(plain, str):
        return first_line(plain)
    if isinstance(plain, dict):
        return {name: first_lines(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [first_lines(each) for each in plain]
    return plain


def tensorboard_commands(rows: Iterable[Row]) -> list[str]:
    """Return one TensorBoard command for the jobs of each connection and proxy user, in the order of the rows.

    A command reads through one connection. Jobs without a known connection, such as damaged summaries, are left out.
    """
    groups: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        through = row["tony_conn_id"], row["proxy_user"] or None
        groups.setdefault(through, []).append(row["application_id"])
    return [tensorboard_command(ids, *through) for through, ids in groups.items() if through[0]]
