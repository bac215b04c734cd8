"""The metrics of a job in the order in which people want to see them, for all pages."""

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
from tony_provider.watching.task_output import displayed_line


def plain_in_order(summary: JobSummary) -> dict[str, Any]:
    """A summary as plain data, whose metrics and curves are ``ranked``."""
    plain: dict[str, Any] = to_plain(summary)
    curves = {each["metric"]: each for each in plain["curves"]}
    metrics = {name: plain["metrics"][name] for name in ranked(plain["metrics"])}
    return {**plain, "metrics": metrics, "curves": [curves[name] for name in ranked(curves)]}


def differences(documents: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The places at which the documents differ, such as ``tasks.worker.memory``, with each one's value.

    None where a document has nothing at that place.
    """
    flat = [dict(_leaves(document, "")) for document in documents]
    paths = sorted({path for each in flat for path in each})
    values = {path: [each.get(path) for each in flat] for path in paths}
    return {path: found for path, found in values.items() if any(each != found[0] for each in found)}


def entries(document: Mapping[str, Any]) -> int:
    """How many places with a value a document has."""
    return len(_leaves(document, ""))


def _leaves(value: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    """Lists are values: which of their items is which, nobody can tell."""
    found: list[tuple[str, Any]] = []
    for key, each in value.items():
        place = f"{path}.{key}" if path else key
        found += _leaves(each, place) if isinstance(each, Mapping) and each else [(place, each)]
    return found


_SAMPLES = 1000  # of a task, at most
_METRICS = 100  # of a task, those that were reported most often: a master keeps 50
_OTHERS = ("task", "metrics")


def sample_columns(
    samples: Iterable[TaskSample], tasks: Sequence[str] | None, most: int
) -> tuple[dict[str, Any], list[str]]:
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


CUT = "… what was printed before is left out\n"
_LONGEST = 16 << 10  # characters of a line


def end_of_output(data: bytes, tail: int) -> str:
    """The last lines of a log, of at most ``tail`` bytes, as a terminal shows them; below ``CUT`` where more was.

    ``data``: one byte more than ``tail``, if there is more: whether the first line is whole is seen by what is before.
    """
    lines = end_of_log(data, tail).split(b"\n")
    text = "\n".join(displayed_line(line, _LONGEST) for line in lines)
    return CUT + text if len(data) > tail else text


def first_lines(plain: Any) -> Any:
    """Plain data, of each text its first line."""
    if isinstance(plain, str):
        return first_line(plain)
    if isinstance(plain, dict):
        return {name: first_lines(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [first_lines(each) for each in plain]
    return plain


def tensorboard_commands(rows: Iterable[Row]) -> list[str]:
    """A command for the jobs of each connection and user, in the order of the rows: one reads through one of these.

    Jobs whose connection is not known, as of damaged summaries, are left out.
    """
    groups: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        through = row["tony_conn_id"], row["proxy_user"] or None
        groups.setdefault(through, []).append(row["application_id"])
    return [tensorboard_command(ids, *through) for through, ids in groups.items() if through[0]]
