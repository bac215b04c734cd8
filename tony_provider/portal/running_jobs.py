"""Figures of running jobs for the portal's lists, from the newest status of each job on the store.

A job's summary in Airflow's database is written when the job starts and when it ends. In between, this module reads the
status: in the background, and at most once per job and interval, however many users have the list open.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.records.summary import figures_of_status, verdict
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.job_views import REFUSED_SECONDS, JobUnavailable, job_of_row
from tony_provider.portal.stored_jobs import LOST, SUSPENDED, UNWATCHED, Row, hours_of, waiting_of
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage.errors import StorageError

log = logging.getLogger(__name__)

INTERVAL = 15.0  # seconds between two reads of a job's status; the page of the list refreshes as often
_MOST = 200  # newest running jobs whose status is read
_FIRST_WAIT = 0.5  # seconds that a list waits for the first status of its jobs
_FORGOTTEN = 20  # intervals after which figures of a job are dropped


@attrs.define
class _Reading:
    asked: float  # monotonic time at which the newest read began
    figures: Row | None = None  # None before the first status
    is_checked: bool = False  # the files belong to the job's DAG


class RunningJobs:
    """Thread-safe cache of the figures of running jobs."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-running")

    def completed(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows, those without a verdict with the newest known figures and state of their jobs.

        Start reading figures that are older than the interval. Wait shortly for jobs whose figures are unknown.
        """
        running = [row for row in rows if row["verdict"] is None and row["state"] != LOST]
        if not running:
            return list(rows)
        first = self._refresh(sorted(running, key=lambda row: row["submitted_ms"], reverse=True)[:_MOST])
        wait(first, _FIRST_WAIT)
        with self._lock:
            known = {key: reading.figures for key, reading in self._readings.items()}
        found = {row["application_id"]: _completed(row, known.get(row["application_id"])) for row in running}
        return [found.get(row["application_id"], row) for row in rows]

    def _refresh(self, rows: Sequence[Row]) -> list[Future[None]]:
        """Start reading. Return the reads of jobs without figures."""
        now, by_connection = time.monotonic(), defaultdict(list)
        with self._lock:
            for key in [key for key, each in self._readings.items() if each.asked < now - _FORGOTTEN * INTERVAL]:
                del self._readings[key]
            for row in rows:
                reading = self._readings.get(row["application_id"])
                has_ended = reading is not None and reading.figures is not None and reading.figures["finished_ms"]
                if reading is None or (reading.asked <= now - INTERVAL and not has_ended):
                    kept = self._readings.setdefault(row["application_id"], _Reading(now))
                    kept.asked = now
                    is_first = kept.figures is None
                    by_connection[row["tony_conn_id"], row["proxy_user"] or None, is_first].append(row)
        reads = {which: self._threads.submit(self._read, *which[:2], some) for which, some in by_connection.items()}
        return [read for (*_, is_first), read in reads.items() if is_first]

    def _read(self, tony_conn_id: str, proxy_user: str | None, rows: Sequence[Row]) -> None:
        """Read the statuses of jobs of one connection. Stop at the first error of the cluster or the store."""
        try:
            with TonyHook(tony_conn_id, proxy_user) as hook:
                hook.expect_store(REFUSED_SECONDS)
                for row in rows:
                    self._read_one(hook, row)
        except (ClusterError, StorageError) as error:
            log.info("The list shows no newer figures of running jobs through %s: %s", tony_conn_id, error)
        except Exception:
            log.exception("The status of running jobs cannot be read through %s", tony_conn_id)

    def _read_one(self, hook: TonyHook, row: Row) -> None:
        with self._lock:
            reading = self._readings.get(row["application_id"])
        if reading is None:
            return
        try:
            job = job_of_row(hook, row, is_checked=reading.is_checked)
        except JobUnavailable as error:
            log.debug("No figures: %s", error)
            return
        reading.is_checked = True
        if (status := job.status(may_have_ended=row["state"] == UNWATCHED)) is not None:
            reading.figures = _figures(status)


def _figures(status: JobStatus) -> Row:
    """Return the fields of a row that a status knows. ``finished_ms`` is None for a running job."""
    plain = to_plain(figures_of_status(status))
    figures = {**plain, "waiting_s": waiting_of(plain["times"]), **hours_of(plain.pop("use"))}
    if (ended := verdict(None, status)) is not None:
        return {**figures, "state": ended.value, "finished_ms": status.finished_ms}
    suspended = {"state": SUSPENDED} if status.state is JobState.SUSPENDED else {}
    return {**figures, **suspended, "finished_ms": None}


def _completed(row: Row, figures: Row | None) -> Row:
    if figures is None and row["state"] == UNWATCHED:  # the job may have ended long ago
        return row
    found = {**row, **(figures or {})}
    until_ms = found["finished_ms"] or time.time() * 1000
    return {**found, "duration_s": max(0.0, until_ms - row["submitted_ms"]) / 1000}


RUNNING_JOBS = RunningJobs()
