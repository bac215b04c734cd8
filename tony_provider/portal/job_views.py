"""Read a job for the portal's pages and convert its data.

The API server serves all users with the same few threads, so none of them may wait for a store. Therefore, files, live
state and logs are read in separate threads and with a timeout, through the job's connection. The module also orders
metrics, compares specifications, and formats samples and ends of logs.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from tony_provider.advice.case import ranked
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application
from tony_provider.cluster.records.summary import JobSummary, tony_command
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.stored_jobs import Row
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.text import end_of_log, first_line
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import flattened
from tony_provider.runtime.protocol.job_orders import JOB_ORDERS, RESIZE, STOP, describe_answer
from tony_provider.runtime.protocol.metrics import IN_STATUS, SHOWN
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import observe
from tony_provider.watching.task_output import displayed_line
from tony_provider.watching.termination import KillOrder, stop_job

log = logging.getLogger(__name__)


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


_SAMPLES = 1000  # maximum samples of one task
_METRICS = 100  # maximum metrics of one task, the most often reported first; a master keeps 50
_OTHERS = ("task", "values", "metrics")


def sample_columns(
    samples: Iterable[TaskSample], tasks: Sequence[str] | None, most: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the samples of each chosen task as columns, and the names of the tasks that were left out.

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


CUT = "… earlier output is left out\n"
_LONGEST = 16 << 10  # limit for the characters of a line


def end_of_output(data: bytes, tail: int) -> str:
    """Return the last lines of a log, at most ``tail`` bytes, as a terminal shows them; ``CUT`` marks omitted output.

    If the log is longer than ``tail``, ``data`` must have one byte more, to show whether the first line is complete.
    """
    lines = end_of_log(data, tail).split(b"\n")
    text = "\n".join(displayed_line(line, _LONGEST) for line in lines)
    return CUT + text if len(data) > tail else text


def without_output(plain: Any) -> Any:
    """Return plain data without program output: each text is reduced to its first line, and each ``cause`` is empty."""
    if isinstance(plain, str):
        return first_line(plain)
    if isinstance(plain, dict):
        shown = {name: without_output(value) for name, value in plain.items()}
        return {**shown, "cause": ""} if isinstance(plain.get("cause"), str) else shown
    if isinstance(plain, list):
        return [without_output(each) for each in plain]
    return plain


def tensorboard_commands(rows: Iterable[Row]) -> list[str]:
    """Return one TensorBoard command for the jobs of each connection and proxy user, in the order of the rows.

    There may be several commands, because each command reads through only one connection. Jobs without a known
    connection, for example because of damaged summaries, are left out.
    """
    groups: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        through = row["tony_conn_id"], row["proxy_user"] or None
        groups.setdefault(through, []).append(row["application_id"])
    return [
        tony_command("tensorboard", *ids, tony_conn_id=conn_id, proxy_user=proxy_user)
        for (conn_id, proxy_user), ids in groups.items()
        if conn_id
    ]


def offered_orders(row: Row) -> list[dict[str, Any]]:
    """Return the orders to a job that its page offers, with their commands."""
    return [
        {
            **attrs.asdict(order),
            "command": tony_command(
                *order.command.format(row["application_id"], "").split(),
                tony_conn_id=row["tony_conn_id"],
                proxy_user=row["proxy_user"] or None,
            ),
        }
        for order in JOB_ORDERS
    ]


_TYPE = re.compile(r"[A-Za-z][\w.-]*")  # a name that is safe in a command line


def specification_of(job: TonyJob) -> dict[str, Any]:
    """Return the job's specification. Blocks. Raises JobUnavailable if it cannot be read."""
    missing: list[str] = []
    if (kept := job.specification(missing)) is None:
        raise JobUnavailable("; ".join(missing))
    return kept.job


def resizable_types(job: TonyJob) -> dict[str, tuple[int, int]]:
    """Return the least and the largest number of tasks of each type that can be resized. Blocks.

    Raises JobUnavailable if the job's specification cannot be read.
    """
    tasks = from_plain(specification_of(job), JobSpec, ignore_unknown=True).tasks
    return {
        name: (task.least_instances, task.max_instances)
        for name, task in tasks.items()
        if task.max_instances is not None and _TYPE.fullmatch(name)
    }


@attrs.frozen(kw_only=True)
class UserOrder:
    """An order that a user of Airflow sends to a job."""

    order: str
    user: str
    grace: float | None = None  # seconds; see ``StopOrder``
    counts: dict[str, int] = attrs.field(factory=dict)  # new numbers of tasks of a resize

    def send(self, job: TonyJob) -> list[str]:
        """Send the order, and return lines on what happens next. Blocks. Raises ClusterError."""
        by = f"the Airflow user {self.user}"
        if self.order == STOP:
            kill = KillOrder("requested on the job's page", by=by, grace=self.grace)
            ends_within = stop_job(job, kill, seconds=MASTER_SECONDS)
            if ends_within is None:
                return [
                    f"The cluster kills {job} without a grace period, because its application master is unreachable"
                ]
            answer: dict[str, Any] = {"ends_within": ends_within}
        elif self.order == RESIZE:
            answer = job.resize(self.counts, f"requested by {by}")
        else:
            answer = job.control(self.order, {"reason": f"requested by {by}"}, seconds=MASTER_SECONDS)
        return list(describe_answer(self.order, str(job), answer, self.counts))


def has_event_files(job: TonyJob, missing: list[str]) -> bool:
    """Return whether the store has event files of the job. If it is unknown, add the reason to ``missing``. Blocks."""
    try:
        return job.has_event_files()
    except (ClusterError, StorageError) as error:
        missing.append(f"event files: {error}")
        return False


SECONDS = 15.0  # timeout of a request to the store or cluster
REFUSED_SECONDS = 2.0  # for how long to retry a store that refuses connections
MASTER_SECONDS = 5.0

T = TypeVar("T")
_threads = ThreadPoolExecutor(8, thread_name_prefix="tony-portal")
# Reading a history takes seconds and memory, and continues after the timeout. Separate threads keep such reads from
# blocking others.
_large = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-history")


class JobUnavailable(Exception):  # noqa: N818 - what was found
    """The job's data cannot be read. ``str()`` is for users and contains no secret."""


@attrs.frozen
class LiveState:
    """The current state of a job, as far as it could be read."""

    application: Application | None  # None if the cluster does not know the job or does not answer
    status: JobStatus | None  # newest status
    missing: list[str]  # one line for each thing that could not be read


def live_state(job: TonyJob) -> LiveState:
    """Return the job's current state. Blocks."""
    seen = observe(job, ask_master=True)
    missing = [str(each) for each in (*seen.outages, seen.unreadable) if each is not None]
    if isinstance(seen.master, ClusterError):
        missing.append(str(seen.master))
    return LiveState(seen.application, seen.newest, missing)


async def read_from_job(row: Row, what: Callable[[TonyJob], T], *, large: bool = False) -> T:
    """Return the result of ``what`` for a job, read through its connection.

    Raises JobUnavailable, after SECONDS at most. Set ``large`` for reading a history: these reads have their own, fewer
    threads.
    """

    def read(hook: TonyHook) -> T:
        return what(job_of_row(hook, row))

    return await _read(row, read, _large if large else _threads)


async def read_from_connection(rows: Sequence[Row], what: Callable[[TonyHook], T]) -> T:
    """Return the result of ``what``, read through the connection of ``rows``.

    One of these jobs must be a job of the connection and of the row's DAG: see job_of_row. Files of old jobs may be
    deleted, and a job that has just started has none. Raises JobUnavailable, after SECONDS at most.
    """

    def read(hook: TonyHook) -> T:
        *others, last = rows
        for row in others:
            with suppress(JobUnavailable):
                job_of_row(hook, row)
                return what(hook)
        job_of_row(hook, last)
        return what(hook)

    return await _read(rows[0], read, _large)


async def _read(row: Row, read: Callable[[TonyHook], T], threads: ThreadPoolExecutor) -> T:
    def ask() -> T:
        with TonyHook(row["tony_conn_id"], row["proxy_user"] or None) as hook:
            hook.expect_store(REFUSED_SECONDS)
            return read(hook)

    try:
        return await wait_with_timeout(asyncio.get_running_loop().run_in_executor(threads, ask), SECONDS)
    except (ClusterError, StorageError) as error:
        raise JobUnavailable(str(error)) from error
    except TimeoutError as error:
        raise JobUnavailable(f"the store has not answered within {SECONDS:.0f} s") from error
    except JobUnavailable:
        raise
    except Exception as error:
        log.exception("%s cannot be read", row["application_id"])
        raise JobUnavailable(f"the job cannot be read ({type(error).__name__}); see the API server's log") from error


def job_of_row(hook: TonyHook, row: Row, *, is_checked: bool = False) -> TonyJob:
    """Return the job of a row after checking that the job's files belong to the row's DAG.

    ``is_checked`` means that an earlier call has read the labels, which never change.

    Any task can write a summary, so the summary alone does not decide which files are shown. The check uses the
    connection's staging directory and the labels that the job has written.
    """
    directory = uris.parent(uris.parent(row["application_dir"])) if row["application_dir"] else ""
    identity = Identity.parse(uris.name(directory)) if directory else None
    job = hook.job(row["application_id"], identity) if identity else None
    if job is None or job.directory != row["application_dir"]:
        raise JobUnavailable(
            f"the files of {row['application_id']} are not below the staging directory of the connection "
            f"{row['tony_conn_id']!r}; check whether the connection has changed"
        )
    if is_checked:
        return job
    labels: dict[str, Any] = job.labels()
    if labels and labels.get("dag_id", "") != row["dag_id"]:
        raise JobUnavailable(f"{job} is a job of another DAG")
    if not labels and not _is_of(job, row):
        raise JobUnavailable(f"cannot check whether {job} belongs to this DAG: the job has written no files yet")
    return job


def _is_of(job: TonyJob, row: Row) -> bool:
    """Return whether the cluster lists the application under the row's task instance.

    This replaces the check of labels until the master has written them. It returns False for a training with a
    ``checkpoint_key``, because the row has no such key from a trusted source.
    """
    columns = {name: row[name] for name in ("dag_id", "run_id", "task_id", "map_index")}
    application, identity = job.application(), job.training
    return application is not None and identity.tag in application.tags and identity == job.hook.identity(**columns)
