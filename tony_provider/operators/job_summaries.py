"""The summary of a try's application, for Airflow's pages and for reports.

If parts of the summary cannot be read, the task logs a warning and continues after a few seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from airflow.providers.common.compat.sdk import redact

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord, mask_values
from tony_provider.cluster.records.summary import (
    DETAILS_KEY,
    JOB_KEY,
    JOBS_KEY,
    REFUSAL_KEY,
    Advice,
    JobSummary,
    ParameterSource,
    Refusal,
    in_parts,
    summarize,
    with_parameters,
)
from tony_provider.exceptions import REFUSALS, TonySpecError
from tony_provider.hooks.connection import mask_of
from tony_provider.operators.try_state import StateStore, TaskInstanceInfo
from tony_provider.run_dates import known_run_date
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.jobspec.problems import flattened
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.hooks.job import TonyJob
    from tony_provider.operators.tony import TonyTrainOperator
    from tony_provider.runtime.jobspec.model import JobSpec


_LONGEST_NUMBER = 10  # digits
_LONGEST_REFUSAL = 16_000  # characters

T = TypeVar("T")


def begun_summary(job: TonyJob, run: TaskInstanceInfo, run_date: str | None, **more: Any) -> JobSummary:
    """Return the summary of a started job: data of the task in Airflow, and the readable data of the job's files.

    ``more`` are further fields of the summary.
    """
    fingerprint: dict[str, str] = {}
    with contextlib.suppress(ClusterError, StorageError):
        chain = job.owned_chain()
        fingerprint = dict(chain.about.fingerprint) if chain is not None and chain.about is not None else {}
    pages = attrs.asdict(job.pages())
    return JobSummary(
        application_id=job.application_id,
        application_dir=job.directory,
        **attrs.asdict(run, filter=attrs.filters.exclude("bundle_version")),
        run_date=run_date,
        tony_conn_id=job.hook.tony_conn_id,
        proxy_user=job.hook.proxy_user,
        fingerprint=fingerprint,
        links={name: address for name, address in pages.items() if address},
        **more,
    )


def submitted_by(labels: Mapping[str, str]) -> int:
    """Return the number of the try that submitted an application with these labels, or 1 if they do not name it."""
    number = labels.get("try_number", "")
    return int(number) if number.isdecimal() and len(number) < _LONGEST_NUMBER else 1


READ_SECONDS = 5.0  # time limit of the cluster and the store
KEEP_SECONDS = 3.0  # time limit of Airflow's store
HURRIED_SECONDS = 0.7  # replaces both limits if Airflow is about to kill this process
RESTORE_SECONDS = 10.0  # time after which no further earlier application is summarized
KEPT = 20  # maximum summaries of one task instance, because each clearing may add one


class Summaries:
    """The summaries of one try's applications, which are stored in Airflow for its pages.

    Without a ``store``, ``end`` still returns a summary for reports. Raises only exceptions that interrupt a task.
    """

    def __init__(
        self,
        task: TonyTrainOperator,
        context: Context,
        run: TaskInstanceInfo,
        specification: Callable[[], JobSpec],
        store: StateStore | None,
    ) -> None:
        """``specification`` returns the task's job. It may raise TonySpecError."""
        self._task = task
        self._specification = specification
        self._log = task.log
        self._run = run
        self._store = store
        date = known_run_date(context.get("dag_run"))
        self._run_date = date.isoformat() if date is not None else None
        self._params: dict[str, Any] = mask_values(flattened(context.get("params") or {}), mask_of({}))
        self.begun = False  # whether an application of this try was submitted or attached
        self._ended: set[str] = set()  # applications whose final summary is stored

    def begin(self, job: TonyJob) -> None:
        """Add a submitted or attached job to the stored summaries, so that Airflow's pages list it."""
        self.begun = True
        if self._store is None:
            return
        look = self._in_time(READ_SECONDS, "looked up", "the cluster", job.application)
        self._keep(job, look, JobHistory(application_id=job.application_id))
        if self._run.try_number > 1:
            self._store.delete(REFUSAL_KEY)
            self._restore(self._store, job)
        self._list(self._store, job)

    def record_refusal(self, error: BaseException | None) -> None:
        """Store ``error`` for Airflow's pages if it refused the job of this try."""
        if (store := self._store) is None or self.begun or not isinstance(error, REFUSALS):
            return
        text = str(redact(str(error)))[:_LONGEST_REFUSAL]  # a part of a secret would not be masked
        refusal = to_plain(Refusal(text=text, try_number=self._run.try_number, time_ms=epoch_ms()))
        self._in_time(KEEP_SECONDS, "stored", "Airflow", lambda: store.set(REFUSAL_KEY, refusal, forever=True))

    def end(
        self,
        job: TonyJob,
        application: Application | None,
        status: JobStatus | None,
        history: JobHistory | None = None,
        advice: Sequence[Advice] = (),
    ) -> JobSummary | None:
        """Return the summary of an ended application, or None if there is none.

        ``history`` has all records of the application; None if they were not read yet.
        """
        if history is None or application is None:
            kept = self._sum_up(job, application, status, advice)
        else:
            kept = self._keep(job, application, _with(status, history), advice)
        self._ended.add(job.application_id)
        return kept

    def record_exit(self, job: TonyJob, *, hurried: bool = False) -> None:
        """At the end of the try, store a summary of the job's present state, unless its final summary is stored.

        ``hurried``: Airflow is about to kill this process, so the time limits are shorter.
        """
        if self._store is not None and job.application_id not in self._ended:
            self._sum_up(job, hurried=hurried)

    def _sum_up(
        self,
        job: TonyJob,
        application: Application | None = None,
        status: JobStatus | None = None,
        advice: Sequence[Advice] = (),
        *,
        hurried: bool = False,
        try_number: int | None = None,
    ) -> JobSummary | None:
        known = application, JobHistory(application_id=job.application_id, status=status)
        seconds, whom = HURRIED_SECONDS if hurried else READ_SECONDS, "the cluster or its store"
        look = self._in_time(seconds, "read completely", whom, lambda: self._look(job, *known)) or known
        if look[0] is not None or look[1].status is not None:  # otherwise the stored summary already contains more
            return self._keep(job, *look, advice, hurried=hurried, try_number=try_number)
        return None

    def _look(
        self, job: TonyJob, application: Application | None, known: JobHistory
    ) -> tuple[Application | None, JobHistory]:
        application = application or job.application()
        try:
            found = job.history()
        except (ClusterError, StorageError) as error:
            self._log.warning("The summary of the job has no curves: %s", error)
            return application, known
        return application, _with(known.status, found)

    def _keep(
        self,
        job: TonyJob,
        application: Application | None,
        history: JobHistory,
        advice: Sequence[Advice] = (),
        *,
        hurried: bool = False,
        try_number: int | None = None,
    ) -> JobSummary | None:
        def keep() -> JobSummary:
            known = attrs.evolve(history, specification=history.specification or self._record())
            summary = summarize(self._begun(job, try_number), known, application, advice)
            if self._store is not None:
                first, details = in_parts(summary)
                # Store the details first, so that a reader of the final summary also finds its details.
                self._store.set(DETAILS_KEY + job.application_id, details, forever=True)
                self._store.set(JOB_KEY + job.application_id, first, forever=True)
            return summary

        return self._in_time(HURRIED_SECONDS if hurried else KEEP_SECONDS, "stored", "Airflow", keep)

    def _begun(self, job: TonyJob, try_number: int | None) -> JobSummary:
        begun = begun_summary(
            job,
            self._run if try_number is None else attrs.evolve(self._run, try_number=try_number),
            self._run_date,
            watched=self._task.wait_for_completion,
            submitted_ms=epoch_ms(),
        )
        return with_parameters(begun, ParameterSource.RUN, self._params)

    def _record(self) -> SpecificationRecord | None:
        with contextlib.suppress(TonySpecError):  # the specification is optional here
            return SpecificationRecord(job=mask_values(to_plain(self._specification()), mask_of({})))
        return None

    def _in_time(self, seconds: float, what: str, who: str, act: Callable[[], T]) -> T | None:
        """Return the result of ``act``, or None after a warning if it fails or exceeds ``seconds``.

        ``who`` names the peer for the warning.
        """
        [call] = run_in_threads([act], seconds, "tony-summary")
        if not call.done():
            problem = f"{who} has not answered within {seconds:g} s"
        elif error := call.exception():  # the task is more important than its summary
            problem = str(error) or type(error).__name__
        else:
            return call.result()
        self._log.warning("The summary of the job cannot be %s: %s", what, problem)
        return None

    def _restore(self, store: StateStore, newest: TonyJob) -> None:
        """Summarize earlier applications of the training whose final summaries are missing in Airflow.

        A final summary is missing if a try died, or if Airflow has discarded it.
        """
        give_up = time.monotonic() + RESTORE_SECONDS
        hook, identity = newest.hook, newest.training
        others = self._in_time(READ_SECONDS, "looked up", "the store", lambda: hook.application_ids(identity)[-KEPT:])
        for other in others or []:
            if other != newest.application_id and time.monotonic() < give_up:
                self._restore_one(store, hook.job(other, identity))

    def _restore_one(self, store: StateStore, job: TonyJob) -> None:
        key = JOB_KEY + job.application_id
        found = self._in_time(KEEP_SECONDS, "looked up", "Airflow", lambda: store.get(key, forever=True))
        kept = found if isinstance(found, dict) else {}
        if kept.get("verdict") is not None:
            return
        number = kept.get("try_number")
        if not isinstance(number, int):
            labels = self._in_time(READ_SECONDS, "assigned to a try", "the store", job.labels)
            number = submitted_by(labels or {})
        if self._sum_up(job, try_number=number) is not None:
            self._list(store, job)

    def _list(self, store: StateStore, job: TonyJob) -> None:
        self._in_time(KEEP_SECONDS, "listed", "Airflow", lambda: _list(store, job.application_id))


def _list(store: StateStore, application_id: str) -> None:
    """Add the application to the list of summaries, and delete the oldest summaries above the limit."""
    kept = store.get(JOBS_KEY, forever=True)
    ids = [each for each in kept if isinstance(each, str)] if isinstance(kept, list) else []
    ids = [*(each for each in ids if each != application_id), application_id]
    for old in ids[:-KEPT]:
        store.delete(JOB_KEY + old)
        store.delete(DETAILS_KEY + old)
    store.set(JOBS_KEY, [*ids[-KEPT:]], forever=True)


def _with(status: JobStatus | None, history: JobHistory) -> JobHistory:
    return history if status is None else attrs.evolve(history, status=status)
