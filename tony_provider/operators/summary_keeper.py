"""The summaries of a try's applications, handed to Airflow: lists and comparisons then need neither cluster nor store.

They are in the state of the task instance. Airflow may discard it when the task is cleared, so the next try sums up
again what the training has left on the store.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.history.summary_parts import DETAILS_KEY, JOB_KEY, JOBS_KEY, in_parts
from tony_provider.cluster.identity import Identity
from tony_provider.operators.summary import KEEP_SECONDS, READ_SECONDS, Summaries, submitted_by
from tony_provider.operators.training_task import TrainingTask
from tony_provider.operators.tries import TaskRun
from tony_provider.state_store import StateStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

HURRIED_SECONDS = 0.7  # that cluster and store have, and Airflow too, where it is about to kill this process
RESTORE_SECONDS = 10.0  # after which no further earlier application is summed up
KEPT = 20  # summaries of one task instance: each clearing may add one


class SummaryKeeper(Summaries):
    """What hands the summaries to Airflow, which keeps them for its pages."""

    def __init__(self, task: TrainingTask, context: Context, run: TaskRun, store: StateStore) -> None:
        super().__init__(task, context, run)
        self._store = store

    def begin(self, application_id: str) -> None:
        look = self._in_time(READ_SECONDS, "looked up", "the cluster", lambda: self._hook.application(application_id))
        self._keep(application_id, look, JobHistory(application_id=application_id), KEEP_SECONDS)
        if self._run.try_number > 1:
            self._restore(application_id)
        self._in_time(KEEP_SECONDS, "listed", "Airflow", lambda: self._list(application_id))

    def leave(self, application_id: str, *, hurried: bool = False) -> None:
        if application_id not in self._ended:
            times = (HURRIED_SECONDS, HURRIED_SECONDS) if hurried else (READ_SECONDS, KEEP_SECONDS)
            self._sum_up(application_id, None, None, *times)

    def _restore(self, newest: str) -> None:
        """Sum up earlier applications of the training whose end Airflow does not know.

        Their tries died, or Airflow has discarded their summaries.
        """
        give_up = time.monotonic() + RESTORE_SECONDS
        identity = self._run.identity(self._hook, self._task.checkpoint_key)
        others = self._in_time(
            READ_SECONDS, "looked up", "the store", lambda: self._hook.application_ids(identity)[-KEPT:]
        )
        for other in others or []:
            if other != newest and time.monotonic() < give_up:
                self._restore_one(identity, other)

    def _restore_one(self, identity: Identity, application_id: str) -> None:
        key = JOB_KEY + application_id
        found = self._in_time(KEEP_SECONDS, "looked up", "Airflow", lambda: self._store.get(key, forever=True))
        kept = found if isinstance(found, dict) else {}
        if kept.get("verdict") is not None:
            return
        number = kept.get("try_number")
        if not isinstance(number, int):
            labels = self._in_time(
                READ_SECONDS, "dated", "the store", lambda: self._hook.labels(identity, application_id)
            )
            number = submitted_by(labels or {})
        if self._sum_up(application_id, None, None, READ_SECONDS, KEEP_SECONDS, try_number=number) is not None:
            self._in_time(KEEP_SECONDS, "listed", "Airflow", lambda: self._list(application_id))

    def _hand_over(self, application_id: str, summary: JobSummary) -> None:
        first, details = in_parts(summary)
        # The details first: whoever sees that it has ended finds them.
        self._store.set(DETAILS_KEY + application_id, details, forever=True)
        self._store.set(JOB_KEY + application_id, first, forever=True)

    def _list(self, application_id: str) -> None:
        """Note that there is a summary of it, and forget the oldest where there are too many."""
        kept = self._store.get(JOBS_KEY, forever=True)
        ids = [each for each in kept if isinstance(each, str)] if isinstance(kept, list) else []
        ids = [*(each for each in ids if each != application_id), application_id]
        for old in ids[:-KEPT]:
            self._store.delete(JOB_KEY + old)
            self._store.delete(DETAILS_KEY + old)
        self._store.set(JOBS_KEY, [*ids[-KEPT:]], forever=True)
