"""The start of a try: it attaches to the application that an earlier try has left running, or submits one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.previous_application import PreviousApplication
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskTry
from tony_provider.runtime.training_owner import Owner
from tony_provider.watching.termination import Kill, clean_up, end_application

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


@attrs.frozen
class StartedApplication:
    """The application that a try waits for: one that it has submitted, or found of an earlier try."""

    application_id: str
    attached: bool = False  # an earlier try has started it
    has_ended: bool = False  # and it has succeeded, without Airflow having the result


@attrs.frozen
class ApplicationStarter:
    """What starts the application of one try, or finds the one that an earlier try has started."""

    hook: TonyHook
    this_try: TaskTry
    remember: Callable[[str], None]  # is given the application's id when the try attaches to it
    before_submit: Callable[[str], None]  # the same before it can exist; raises when nobody wants it any more
    completed: Callable[[SubmissionRequest], SubmissionRequest]  # the request with what only a new application needs
    instance_exists: Callable[[int], bool]  # another mapped instance of the task, by its index
    log: Logger

    def attach_or_submit(self, request: SubmissionRequest, remembered: str | None) -> StartedApplication:
        """Attach to what an earlier try has left, if there is something to wait for or to return; else submit the job.

        See ``PreviousApplication`` for what can have been left; ``remembered``: its id, from Airflow's store. Raises as
        ``TonyHook.submit``, StorageError; TonySpecError for an application of another mapped instance.
        """
        if "map_index" in request.labels and (found := self.hook.previous_application(request.identity)):
            self._check_instance(request, found)  # before this try takes over what may be another instance's
        owner = self._begin(request)
        before = self.hook.previous_application(request.identity, remembered=remembered)
        if before is not None and before.is_live and owner.stop is not None:
            self.log.info("Ending %s, whose end an earlier try has ordered", before.application_id)
            kill = Kill(owner.stop.reason, self.this_try.name)
            end_application(self.hook, request.identity, before.application_id, kill)
            return self.submit(request)
        if before is not None and (before.is_live or self._is_undelivered(before)):
            self._check_instance(request, before)
            self.remember(before.application_id)
            if before.is_live:
                self.log.info("Attaching to %s, which an earlier try of this task started", before.application_id)
            else:
                self.log.info(
                    "%s has succeeded for an earlier try of this task, which could not hand the result to Airflow: "
                    "returning it",
                    before.application_id,
                )
            return StartedApplication(before.application_id, attached=True, has_ended=not before.is_live)
        if before is not None:
            self.log.info("The application before: %s", before)
            # What it no longer needs, should neither its master nor its try have lived to remove it.
            clean_up(self.hook, request.identity, before.application_id, self.log.warning)
        return self.submit(request)

    def end_and_submit(self, request: SubmissionRequest) -> StartedApplication:
        """End whatever runs of this training and submit the job, without a look at what earlier tries have reached.

        Raises as ``TonyHook.submit``, StorageError.
        """
        self._begin(request)
        for application in self.hook.find(request.identity):
            self.log.info("Ending %s, which an earlier try of this task started", application.id)
            kill = Kill("a next try of its task begins anew", self.this_try.name)
            end_application(self.hook, request.identity, application.id, kill)
        return self.submit(request)

    def _begin(self, request: SubmissionRequest) -> Owner:
        """Begin the try at the store, so that earlier tries lose the training. Return the present owner."""
        owners = self.hook.owners(request.identity)
        return owners.begin(self.this_try.waiting).owner

    def submit(self, request: SubmissionRequest) -> StartedApplication:
        epoch = self.hook.owners(request.identity).still(self.this_try.waiting)
        request = attrs.evolve(request, after_owner=epoch.number, whose=self.this_try.waiting)
        application_id = self.hook.submit(self.completed(request), before_submit=self.before_submit)
        directory = self.hook.application_dir(request.identity, application_id)
        self.log.info("Submitted %s (%s); its results and logs go to %s", application_id, request.job.name, directory)
        return StartedApplication(application_id)

    def _check_instance(self, request: SubmissionRequest, before: PreviousApplication) -> None:
        """With one key for two, the one's model would be the other's result.

        Where the list has changed, the same training has another index now: only while both are there are they two.
        """
        mine = request.labels.get("map_index")
        if mine is None:
            return
        theirs = self.hook.labels(request.identity, before.application_id).get("map_index", mine)
        if theirs != mine and self.instance_exists(int(theirs)):
            first, second = sorted((theirs, mine), key=int)
            raise TonySpecError(
                f"checkpoint_key: the mapped instances {first} and {second} of this task have the same one, which "
                f"makes them one training, that of {before.application_id}; give each its own"
            )

    def _is_undelivered(self, before: PreviousApplication) -> bool:
        if not before.has_succeeded:
            return False
        return before.delivered is None or not self.this_try.follows_success(before.delivered)
