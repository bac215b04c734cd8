"""Running jobs, and jobs without a DAG, as the store records them, for the portal's lists.

A job's summary in Airflow's database is written when the job starts and when it ends. In between, ``RunningJobs`` reads
the status: at most once per job and interval, however many users have the list open. The database has no record of jobs
that `airflow tony submit` has submitted, so ``ConnectionListings`` lists them from the store of a connection. Both use
their own threads, because a store may be slow. Requests return what these threads have read.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from tony_provider.cluster.errors import ClusterError, RecordUnreadable, logging_errors
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import (
    JOB_KEY,
    JobSummary,
    figures_of_status,
    in_parts,
    summarize,
    verdict,
)
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.job_views import REFUSED_SECONDS, JobUnavailable, job_of_row
from tony_provider.portal.stored_jobs import (
    LOST,
    RUNNING,
    SUSPENDED,
    UNWATCHED,
    Row,
    hours_of,
    ordered,
    row_of,
    waiting_of,
)
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.protocol.limits import STATUS_STALE
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage.errors import StorageError

log = logging.getLogger(__name__)

INTERVAL = 15.0  # seconds between two reads of a job's status; the page of the list refreshes as often
_MOST = 200  # newest running jobs whose status is read
_FIRST_FIGURES = 0.3  # seconds that a list waits for the first status of its jobs
_MOST_CACHED = 2000  # jobs; above it, the cache is emptied


@attrs.define
class _Reading:
    read_started: float = float("-inf")  # monotonic time at which the newest read began
    figures: Row | None = None  # None before the first status
    is_checked: bool = False  # the files belong to the job's DAG


_Key = tuple[Any, ...]
_IDENTIFYING = ("application_id", "dag_id", "run_id", "task_id", "map_index", "tony_conn_id", "proxy_user")


def _key(row: Row) -> _Key:
    """Return what identifies a row. Any task can store a summary with the application ID of another task's job."""
    return tuple(row[name] for name in _IDENTIFYING)


class RunningJobs:
    """Thread-safe cache of the figures of running jobs."""

    def __init__(self) -> None:
        self._readings: dict[_Key, _Reading] = {}
        self._reads: dict[_Key, Future[None]] = {}  # newest read of each connection
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-running")

    def completed(self, rows: Sequence[Row]) -> list[Row]:
        """Return all rows, and refresh the figures and the state of rows without a verdict.

        Start reading figures that are older than the interval. Wait shortly for jobs whose figures are unknown.
        """
        running = [row for row in rows if row["verdict"] is None and row["state"] != LOST]
        of_dags = [row for row in running if row["dag_id"]]  # rows without a DAG are already current
        first = self._refresh(ordered(of_dags, "-submitted")[:_MOST])
        wait(first, _FIRST_FIGURES)
        with self._lock:
            found = {id(row): _completed(row, self._readings.get(_key(row))) for row in running}
        return [found.get(id(row), row) for row in rows]

    def _refresh(self, rows: Sequence[Row]) -> list[Future[None]]:
        """Start reading, unless a read of the same connection runs. Return the first reads of jobs."""
        now, by_connection, first = time.monotonic(), defaultdict(list), []
        with self._lock:
            if len(self._readings) > _MOST_CACHED:
                self._readings.clear()
            for row in rows:
                reading = self._readings.setdefault(_key(row), _Reading())
                if reading.read_started <= now - INTERVAL and not (reading.figures or {}).get("finished_ms"):
                    by_connection[row["tony_conn_id"], row["proxy_user"] or None].append((row, reading))
            for which, some in by_connection.items():
                read = self._reads.get(which)
                if read is None or read.done():
                    read = self._reads[which] = self._threads.submit(_read_all, which, some)
                    first += [read] * any(reading.read_started < 0 for _, reading in some)
                    for _, reading in some:
                        reading.read_started = now
        return first


def _read_all(which: tuple[str, str | None], jobs: Sequence[tuple[Row, _Reading]]) -> None:
    """Read the statuses of jobs of one connection and proxy user. Stop if the cluster or the store is unreachable."""
    what = "Refreshing the running jobs of the connection %s failed"
    with logging_errors(log.info, what, which[0]), TonyHook(*which) as hook:
        hook.expect_store(REFUSED_SECONDS)
        for row, reading in jobs:
            _read(hook, row, reading)


def _read(hook: TonyHook, row: Row, reading: _Reading) -> None:
    try:
        status = job_of_row(hook, row, is_checked=True).status(may_have_ended=row["state"] == UNWATCHED)
        if status is None:  # a job in the queue
            return
        if not reading.is_checked:
            job_of_row(hook, row)
        reading.is_checked, reading.figures = True, _figures(status)
    except (JobUnavailable, RecordUnreadable) as error:
        log.debug("No figures: %s", error)


def _figures(status: JobStatus) -> Row:
    """Return the fields of a row that a status knows. ``finished_ms`` is None for a running job."""
    plain = to_plain(figures_of_status(status)) | {"parameters": status.parameters}
    figures = {**plain, "waiting_s": waiting_of(plain["times"]), **hours_of(plain.pop("use"))}
    ended = verdict(None, status)
    state = ended.value if ended else SUSPENDED if status.state is JobState.SUSPENDED else ""
    return {**figures, "finished_ms": status.finished_ms} | ({"state": state} if state else {})


def _completed(row: Row, reading: _Reading | None) -> Row:
    figures = reading and reading.figures
    if figures is None and row["state"] == UNWATCHED:  # the job may have ended long ago
        return row
    found = {**row, **(figures or {})}
    found["parameters"] = {**row["parameters"], **found["parameters"]}
    until_ms = found["finished_ms"] or time.time() * 1000
    return {**found, "duration_s": max(0.0, until_ms - row["submitted_ms"]) / 1000}


RUNNING_JOBS = RunningJobs()


_SLUG = "cli-"  # start of the directory of a training without a DAG; see ``cli.submit``
_MOST_TRAININGS = 200  # newest trainings of a connection
_LONGEST_ID = 250  # characters, as in Airflow's database
_FIRST_WAIT = 2.0  # seconds that a request waits for the first list of a connection


@attrs.frozen
class _Job:
    row: Row
    summary: JobSummary


@attrs.define
class _Listing:
    read_started: float = float("-inf")  # monotonic time at which the newest read began
    jobs: dict[str, _Job] | None = None  # None before the first list
    problem: str = ""
    reading: Future[None] | None = None


@attrs.frozen
class ConnectionJobs:
    """The jobs without a DAG of one connection, for one request."""

    jobs: dict[str, _Job]
    problem: str  # why newer jobs may be missing, or an empty string

    def rows(
        self,
        *,
        dag_id: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
    ) -> list[Row]:
        wanted = {"dag_id": dag_id, "task_id": task_id, "run_id": run_id, "map_index": map_index}
        rows = [job.row for job in self.jobs.values()]
        return [row for row in rows if all(value in (None, row[name]) for name, value in wanted.items())]

    def row(self, application_id: str) -> Row | None:
        found = self.jobs.get(application_id)
        return found.row if found else None

    def siblings(self, row: Row) -> list[Row]:
        """Return all jobs of the row's training, including the row, newest first."""
        return ordered(self.rows(task_id=row["task_id"], run_id=row["run_id"]), "-submitted")

    def summary(self, row: Row) -> tuple[JobSummary, list[str]]:
        return self.jobs[row["application_id"]].summary, []

    def close(self) -> None:
        """Do nothing: these jobs use no database connection."""


class ConnectionListings:
    """Thread-safe cache of the jobs of each connection."""

    def __init__(self) -> None:
        self._listings: dict[str, _Listing] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-connection")

    def jobs(self, tony_conn_id: str) -> ConnectionJobs:
        """Return the jobs of the connection, at most as old as INTERVAL and the duration of a read."""
        now = time.monotonic()
        with self._lock:
            listing = self._listings.setdefault(tony_conn_id, _Listing())
            is_read = listing.reading is None or listing.reading.done()
            if listing.read_started <= now - INTERVAL and is_read:
                listing.read_started = now
                listing.reading = self._threads.submit(self._read, tony_conn_id, listing)
            reading = listing.reading
        if listing.jobs is None and reading:
            wait([reading], _FIRST_WAIT)
        if listing.jobs is None:
            return ConnectionJobs({}, listing.problem or "The store is still being read.")
        return ConnectionJobs(listing.jobs, listing.problem)

    def _read(self, tony_conn_id: str, listing: _Listing) -> None:
        try:
            with TonyHook(tony_conn_id) as hook:
                hook.expect_store(REFUSED_SECONDS)
                found = dict(_jobs_of(hook, listing.jobs or {}))
            listing.jobs, listing.problem = found, ""
        except (ClusterError, StorageError) as error:
            listing.problem = str(error)
        except Exception as error:
            log.exception("The jobs of %s cannot be listed", tony_conn_id)
            listing.problem = f"Reading the store failed ({type(error).__name__}); see the API server's log."


def _jobs_of(hook: TonyHook, known: dict[str, _Job]) -> Iterator[tuple[str, _Job]]:
    """Yield the jobs of the newest trainings without a DAG. ``known`` are jobs that were read before."""
    trainings = (identity for identity in hook.trainings() if identity.slug.startswith(_SLUG))
    for identity in islice(trainings, _MOST_TRAININGS):
        for application_id in hook.application_ids(identity):
            job = known.get(application_id)
            if job is None or job.summary.verdict is None:
                with suppress(RecordUnreadable):  # the record of one job must not hide the others
                    job = _job_of(hook.job(application_id, identity))
            if job:
                yield application_id, job


def _job_of(job: TonyJob) -> _Job | None:
    """Return the job, or None if a DAG has submitted it, or if nothing is known of it yet."""
    labels = job.labels()
    status = job.status() if labels and "dag_id" not in labels else None
    if status is None:
        return None
    begun = JobSummary(
        application_id=job.application_id,
        application_dir=job.directory,
        dag_id="",
        run_id=labels.get("run_id", "")[:_LONGEST_ID],
        task_id=status.name[:_LONGEST_ID],
        watched=False,
        tony_conn_id=job.hook.tony_conn_id,
        user=labels.get("submitted_by", ""),
    )
    is_old = not status.state.is_final and time.time() - status.updated_ms / 1000 > STATUS_STALE
    application = job.application() if is_old else None
    summary = summarize(begun, JobHistory(application_id=job.application_id, status=status), application)
    columns = {name: getattr(summary, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
    row = row_of(columns, JOB_KEY + job.application_id, json.dumps(in_parts(summary)[0]))
    if row["state"] is None:
        running = SUSPENDED if status.state is JobState.SUSPENDED else RUNNING
        row["state"] = LOST if is_old and application is None else running
    return _Job(row, summary)


CONNECTION_LISTINGS = ConnectionListings()
