"""How a try of a task comes by its application: the one that an earlier try has left, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.lineage_choice import Resume
from tony_provider.cluster.lineage_origin import Origin
from tony_provider.cluster.predecessor import Predecessor
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.killing import end_application
from tony_provider.operators.tries import Try
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage.errors import StorageError

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


@attrs.frozen
class Started:
    application_id: str
    attached: bool = False  # an earlier try has started it
    has_ended: bool = False  # and it has succeeded, without Airflow having the result


@attrs.frozen
class Starter:
    """Everything that a submission needs beside the job."""

    hook: TonyHook
    identity: Identity
    this_try: Try
    resume: Resume
    origin: Origin
    secrets: Mapping[str, str] = attrs.field(repr=False)
    labels: Mapping[str, str]
    search_path: Sequence[Path]
    remember: Callable[[str], None]  # is given the application's id when the try attaches to it
    before_submit: Callable[[str], None]  # the same before it can exist; raises when nobody wants it any more
    log: Logger

    def attach_or_submit(self, job: JobSpec, remembered: str | None) -> Started:
        """See ``Predecessor`` for what an earlier try can have left; ``remembered``: its id, from Airflow's store.

        Raises as ``TonyHook.submit``, StorageError.
        """
        before = self.hook.predecessor(self.identity, remembered=remembered)
        if before is not None and (before.is_live or self._is_undelivered(before)):
            self.remember(before.application_id)
            if before.is_live:
                self.log.info("Attaching to %s, which an earlier try of this task started", before.application_id)
            else:
                self.log.info(
                    "%s has succeeded for an earlier try of this task, which could not hand the result to Airflow: "
                    "returning it",
                    before.application_id,
                )
            return Started(before.application_id, attached=True, has_ended=not before.is_live)
        if before is not None:
            self._tidy(before)
        return self.submit(job)

    def end_and_submit(self, job: JobSpec) -> Started:
        """Without a look at what earlier tries have reached. Raises as ``TonyHook.submit``, StorageError."""
        for application in self.hook.find(self.identity):
            self.log.info("Ending %s, which an earlier try of this task started", application.id)
            end_application(self.hook, self.identity, application.id, "a next try of its task begins anew")
        return self.submit(job)

    def submit(self, job: JobSpec) -> Started:
        application_id = self.hook.submit(
            job,
            identity=self.identity,
            secrets=self.secrets,
            labels=self.labels,
            search_path=self.search_path,
            resume=self.resume,
            origin=self.origin,
            before_submit=self.before_submit,
        )
        directory = self.hook.application_dir(self.identity, application_id)
        self.log.info("Submitted %s (%s); its results and logs go to %s", application_id, job.name, directory)
        return Started(application_id)

    def _is_undelivered(self, before: Predecessor) -> bool:
        if not before.has_succeeded:
            return False
        return before.delivered is None or not self.this_try.follows_success(before.delivered)

    def _tidy(self, before: Predecessor) -> None:
        """What it no longer needs, should neither its master nor its try have lived to remove it."""
        self.log.info("The application before: %s", before)
        try:
            self.hook.cleanup(self.identity, before.application_id)
        except (ClusterError, StorageError) as error:
            self.log.warning("Not everything of %s could be removed: %s", before.application_id, error)
