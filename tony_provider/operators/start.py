"""How a try of a task comes by its application: the one that an earlier try has left, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.lineage_choice import Resume
from tony_provider.cluster.lineage_origin import Origin
from tony_provider.cluster.predecessor import Predecessor
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import Try
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.watching.clearing import clear_up
from tony_provider.watching.killing import Kill, end_application

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
    is_there: Callable[[int], bool]  # another mapped instance of the task, by its index
    log: Logger

    def attach_or_submit(self, job: JobSpec, remembered: str | None) -> Started:
        """See ``Predecessor`` for what an earlier try can have left; ``remembered``: its id, from Airflow's store.

        Raises as ``TonyHook.submit``, StorageError; TonySpecError for an application of another mapped instance.
        """
        before = self.hook.predecessor(self.identity, remembered=remembered)
        if before is not None and (before.is_live or self._is_undelivered(before)):
            self._check_instance(before)
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
            kill = Kill("a next try of its task begins anew", self.this_try.name)
            end_application(self.hook, self.identity, application.id, kill)
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

    def _check_instance(self, before: Predecessor) -> None:
        """With one key for two, the one's model would be the other's result.

        Where the list has changed, the same training has another index now: only while both are there are they two.
        """
        mine = self.labels.get("map_index")
        if mine is None:
            return
        theirs = self.hook.labels(self.identity, before.application_id).get("map_index", mine)
        if theirs != mine and self.is_there(int(theirs)):
            first, second = sorted((theirs, mine), key=int)
            raise TonySpecError(
                f"checkpoint_key: the mapped instances {first} and {second} of this task have the same one, which "
                f"makes them one training, that of {before.application_id}; give each its own"
            )

    def _is_undelivered(self, before: Predecessor) -> bool:
        if not before.has_succeeded:
            return False
        return before.delivered is None or not self.this_try.follows_success(before.delivered)

    def _tidy(self, before: Predecessor) -> None:
        """What it no longer needs, should neither its master nor its try have lived to remove it."""
        self.log.info("The application before: %s", before)
        clear_up(self.hook, self.identity, before.application_id, self.log.warning)
