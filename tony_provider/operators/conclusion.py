"""What a task does with an application that has ended: clears up after it, and tells what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.base import Application
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.exceptions import TonyJobFailed
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.logs import task_log_tail
from tony_provider.operators.result import JobResult
from tony_provider.operators.tries import Try
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.clearing import clear_up
from tony_provider.watching.patience import bear

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


_SHOWN = 1000  # characters of one value of the result, in the task's log


@attrs.frozen
class Conclusion:
    hook: TonyHook
    identity: Identity
    application_id: str
    this_try: Try
    log: Logger

    def clean_up(self) -> None:
        clear_up(self.hook, self.identity, self.application_id, self.log.warning)

    def deliver(self, application: Application | None, status: JobStatus | None) -> dict[str, Any]:
        """The result, of what is known; the task's last act, after which a task that is cleared trains anew.

        Raises ClusterError and StorageError when what the job has returned cannot be read.
        """
        runs = application is not None and not application.is_final
        returned = None if runs else bear(lambda: self.hook.returned(self.identity, self.application_id), self.log)
        result = JobResult.of(self.application_id, self._directory, application, status, self._lineage(), returned)
        for warning in result.warnings:
            self.log.warning("%s", warning)
        for key, value in result.to_dict().items():
            if value not in (None, [], {}):
                self.log.info("%s: %s", key, _short(str(value)))
        try:
            self.hook.mark_delivered(self.identity, self.application_id, self.this_try.delivers())
        except StorageError as error:
            self.log.warning("A task that is cleared would get this very result again: %s", error)
        return result.to_dict()

    def _lineage(self) -> str | None:
        try:
            found = self.hook.lineage(self.identity, self.application_id)
        except (ClusterError, StorageError) as error:
            self.log.warning("Its lineage cannot be told: %s", error)
            return None
        return found.uri if found is not None else None

    def tell_failure(self, error: TonyJobFailed, status: JobStatus | None) -> None:
        """What it had saved, and the end of the failed task's log, or of the application master's when it could not say
        what failed.
        """
        if status is not None and status.checkpoint is not None:
            self.log.info("Its newest checkpoint is that of %s: %s", status.checkpoint.label, status.checkpoint.uri)
        try:
            title, tail = self._log_tail(error)
        except (ClusterError, StorageError) as problem:
            self.log.warning("No logs of %s: %s", self.application_id, problem)
            return
        if tail:
            self.log.error("End of the output of %s:\n%s", title, tail)
        else:
            self.log.warning("No output of %s was kept: it printed nothing, or had no time to keep it", title)

    def _log_tail(self, error: TonyJobFailed) -> tuple[str, str]:
        task = error.failure.task if error.failure is not None else None
        if task is None:
            return "the application master", self.hook.log_tail(self.application_id)
        return task, task_log_tail(self.hook.storage(), self._directory, task)

    @property
    def _directory(self) -> str:
        return self.hook.application_dir(self.identity, self.application_id)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
