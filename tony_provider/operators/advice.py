"""Advice on a task's trainings: logged when a try ends, and applied to the next run if the task requests it.

The advice for the next run is based on a small file on the store with data of earlier runs, see ``PreviousRuns``.
Labels of an application record the advice that was applied to it, so that a retry applies the same advice. Trainings do
not depend on advice: if the store does not answer, the task logs a warning, and the job runs as the DAG specifies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import Advice, JobSummary, PreviousRuns, summarize
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import FailureKind, JobState, JobStatus
from tony_provider.runtime.storage.errors import StorageError

if TYPE_CHECKING:  # the rules are imported on use, because most processes of a task only start or wait
    from airflow.sdk.types import Logger

    from tony_provider.advice.sizing import Limits

APPLIED = "applied_advice"  # label of an application with the applied changes, as JSON
SECONDS = 15.0  # time limit for the advice on an ended application
QUIET_RUNS = 5  # runs that must succeed without advice after a failure with applied advice

# Failures that may be caused by too little memory or too few vcores.
_BLAMED = (FailureKind.OUT_OF_MEMORY, FailureKind.USER, FailureKind.CONTAINER_LOST, FailureKind.STALLED)


@attrs.define
class EndedJobAdvice:
    """The history of an ended application, and advice based on it. Both are missing if the store did not answer."""

    history: JobHistory | None = None
    advice: list[Advice] = attrs.field(factory=list)


@attrs.frozen
class Adviser:
    """Advice on the training of one task in one run."""

    hook: TonyHook
    identity: Identity
    log: Logger

    # -- when a try has ended ------------------------------------------------------------------------------------------

    def conclude(self, job: TonyJob) -> EndedJobAdvice:
        """Log advice on the ended application, and keep its figures for advice on later runs.

        Handles all exceptions. Returns an empty result if the store does not answer within SECONDS.
        """
        judged = EndedJobAdvice()
        in_time = self._in_time(f"There is no advice on {job}", lambda: self._conclude(job, judged))
        return judged if in_time else EndedJobAdvice()

    def timed_out(self, job: TonyJob) -> None:
        """Withdraw applied advice after a timeout of the task, because it may have made the application too slow.

        Handles all exceptions, and takes at most SECONDS.
        """
        self._in_time(f"Cannot withdraw the advice that was applied to {job}", lambda: self._blame(job))

    def _in_time(self, without: str, act: Callable[[], object]) -> bool:
        """Return whether ``act`` has ended within SECONDS, and log its errors."""
        [call] = run_in_threads([act], SECONDS, "tony-advice")
        if not call.done():
            self.log.warning("%s: the store has not answered within %g s", without, SECONDS)
        elif error := call.exception():  # the task is more important than its advice
            self.log.warning("%s: %s", without, str(error) or repr(error))
        return call.done()

    def _conclude(self, ended: TonyJob, judged: EndedJobAdvice) -> None:
        from tony_provider.advice.advise import advice_lines, advise

        job = judged.history = ended.history()
        if job.status is None or not job.status.state.is_final:
            return
        former = self.hook.former_runs(job.labels)
        judged.advice = advise(job, former.summaries)
        for line in advice_lines(judged.advice, ended.application_id):
            self.log.info(line)
        runs = former.with_run(_without_curves(job, ended.directory, judged.advice))
        self.hook.keep_former_runs(job.labels, self._judged(runs, job.status, applied=APPLIED in job.labels))

    def _blame(self, job: TonyJob) -> None:
        labels = job.labels()
        if APPLIED in labels:
            self.hook.keep_former_runs(labels, self._taken_back(self.hook.former_runs(labels), job.application_id))

    def _taken_back(self, runs: PreviousRuns, application_id: str) -> PreviousRuns:
        self.log.warning(
            "Withdrawing the advice that was applied to %s: the next try, and all runs until %s have succeeded, "
            "request the resources in the DAG",
            application_id,
            count(QUIET_RUNS, "run"),
        )
        return attrs.evolve(runs, quiet_runs=QUIET_RUNS, blamed=application_id)

    def _judged(self, runs: PreviousRuns, status: JobStatus, *, applied: bool) -> PreviousRuns:
        """Return ``runs`` with the decision whether advice may be applied to the next runs."""
        failed = status.failure is not None and status.failure.kind in _BLAMED
        if applied and failed:
            return self._taken_back(runs, status.application_id)
        if runs.quiet_runs and status.state is JobState.SUCCEEDED:
            left = runs.quiet_runs - 1
            return attrs.evolve(runs, quiet_runs=left, blamed=runs.blamed if left else None)
        return runs

    # -- before an application starts ----------------------------------------------------------------------------------

    def advised(self, request: SubmissionRequest, limits: Limits) -> SubmissionRequest:
        """Return the request with the advised memory and vcores, within ``limits``.

        A retry applies the same changes as the previous try. Return the request unchanged if there is no data of
        earlier runs, or no advice.
        """
        try:
            former = self.hook.former_runs(request.labels)
            if former.quiet_runs:
                self._tell_quiet(former)
                return request
            before = self.hook.newest_application(self.identity)
            if before is None:
                return self._changed(request, *self._of_former_runs(request, former, limits))
            kept = self.hook.job(before, self.identity).labels().get(APPLIED)
            change = limits.within(json.loads(kept), request.job) if kept else {}
            return self._changed(request, change, f"as for {before} of the previous try")
        except (ClusterError, StorageError, ValueError) as error:
            self.log.warning("No advice is applied: %s", error)
            return request

    def _of_former_runs(
        self, request: SubmissionRequest, former: PreviousRuns, limits: Limits
    ) -> tuple[dict[str, Any], str]:
        from tony_provider.advice.advise import advise_next, merged_change

        found = advise_next(request.job, former.summaries)
        if found is None:
            return {}, ""
        change = limits.within(merged_change(found.advice), request.job)
        said = "; ".join(each.text for each in found.advice if each.change)
        return change, f"based on the data of {found.application_id} and earlier applications: {said}"

    def _changed(self, request: SubmissionRequest, change: dict[str, Any], why: str) -> SubmissionRequest:
        """Apply a change.

        Raises SpecError, a ValueError, if the change makes the job invalid, and JobRejected if the cluster could not
        run the job.
        """
        if not change:
            return request
        job = parse_job(request.job, overrides=change)
        self.hook.check(job)
        self.log.info("Advice is applied (apply_advice): %s, %s", _words(request, change), why)
        labels = {**request.labels, APPLIED: json.dumps(change)}
        return attrs.evolve(request, job=job, labels=labels, advice=change)

    def _tell_quiet(self, former: PreviousRuns) -> None:
        self.log.info(
            "No advice is applied, because %s failed with advice. Advice is applied again after %s",
            former.blamed,
            count(former.quiet_runs, "successful run"),
        )


def _without_curves(job: JobHistory, application_dir: str, advice: list[Advice]) -> JobSummary:
    labels = job.labels
    begun = JobSummary(
        application_id=job.application_id,
        application_dir=application_dir,
        dag_id=labels.get("dag_id", ""),
        run_id=labels.get("run_id", ""),
        task_id=labels.get("task_id", ""),
        map_index=int(labels.get("map_index", -1)),
    )
    return summarize(begun, attrs.evolve(job, samples=[]), advice=advice)


def _words(request: SubmissionRequest, change: dict[str, Any]) -> str:
    """Format a change like ``worker.memory 1536MiB instead of 8192 MiB``."""
    own = request.job.tasks
    return ", ".join(
        f"{task_type}.{key} {value} instead of {getattr(own[task_type], key)}{' MiB' if key == 'memory' else ''}"
        for task_type, keys in change["tasks"].items()
        for key, value in keys.items()
    )
