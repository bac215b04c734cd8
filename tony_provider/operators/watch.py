"""One look after another at a running job, the same from a worker and from a triggerer."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

import attrs

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.results import is_of_result
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.progress import ProgressLog
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage.errors import StorageError

OUTAGE_SECONDS = 600.0  # the cluster may be out of reach this long before a try of the task gives up on it
FORGOTTEN_SECONDS = 30.0  # so long must the cluster not know the application before we believe it


class Reason(StrEnum):
    """Why there is nothing more to watch."""

    FINISHED = "finished"  # well or not
    FORGOTTEN = "forgotten"  # the cluster does not know it, and it left no result
    DEADLINE = "deadline"  # of this try of the task
    QUEUE_TIMEOUT = "queue_timeout"


@attrs.frozen
class Ending:
    reason: Reason
    last_message: str = ""  # the job's own last word on what it was doing or waiting for
    application: Application | None = None  # as last seen
    status: JobStatus | None = None  # as last seen


@attrs.frozen
class Deadlines:
    """Epoch seconds; None: no limit."""

    end: float | None = None  # of this try of the task
    queue: float | None = None  # until which the job may wait for its containers, before they were ever all there


class JobWatch:
    """Looks at one application until it ends. ``log`` is given the lines for the task's log."""

    def __init__(
        self,
        hook: TonyHook,
        identity: Identity,
        application_id: str,
        deadlines: Deadlines,
        log: Callable[[str], None],
    ) -> None:
        self._hook = hook
        self._identity = identity
        self._application_id = application_id
        self._deadlines = deadlines
        self._log = log
        self._progress = ProgressLog()
        self._outage_since: float | None = None
        self._unreadable: RecordUnreadable | None = None
        self._unknown_since: float | None = None
        self._last_message = ""
        self._application: Application | None = None
        self._status: JobStatus | None = None

    def look(self) -> Ending | None:
        """None while the job goes on. Blocks for as long as the cluster takes to answer.

        A cluster or store that does not answer is borne for OUTAGE_SECONDS; then its ClusterError or StorageError is
        raised, and the application is left as it is. A status that cannot be read is done without; RecordUnreadable is
        raised for a result, where nothing else tells how the application ended.
        """
        reason = None
        try:
            application = self._hook.application(self._application_id)
            status = self._job_status()
        except (ClusterError, StorageError) as error:
            self._bear(error)
        else:
            self._application, self._status = application, status
            reason = self._judge(application, status)
            if (unread := self._unreadable) is not None and is_of_result(unread) and _needs_result(reason, application):
                raise unread
        if reason is None and self._deadlines.end is not None and time.time() > self._deadlines.end:
            reason = Reason.DEADLINE
        return Ending(reason, self._last_message, self._application, self._status) if reason else None

    def _job_status(self) -> JobStatus | None:
        """None as well while what is there cannot be read, which is told once."""
        try:
            status = self._hook.job_status(self._identity, self._application_id)
        except RecordUnreadable as error:
            if self._unreadable is None:
                self._log(f"Going on without the status of {self._application_id}: {error}")
            self._unreadable = error
            return None
        self._unreadable = None
        return status

    def _judge(self, application: Application | None, status: JobStatus | None) -> Reason | None:
        if self._outage_since is not None:
            self._outage_since = None
            self._log("The cluster answers again")
        if application is None:
            return self._judge_unknown(status)
        self._unknown_since = None
        self._last_message = status.message if status else application.diagnostics
        for line in self._progress.lines(application, status):
            self._log(line)
        if application.is_final:
            return Reason.FINISHED
        late = self._deadlines.queue is not None and time.time() > self._deadlines.queue
        return Reason.QUEUE_TIMEOUT if late and _waits(application, status) else None

    def _judge_unknown(self, status: JobStatus | None) -> Reason | None:
        """ResourceManagers forget; a result on the store is the truth then."""
        if status is not None and status.state.is_final:
            return Reason.FINISHED
        if self._unknown_since is None:
            self._unknown_since = time.monotonic()
            self._log(f"The cluster does not know {self._application_id}")
        return Reason.FORGOTTEN if time.monotonic() - self._unknown_since > FORGOTTEN_SECONDS else None

    def _bear(self, error: ClusterError | StorageError) -> None:
        now = time.monotonic()
        if self._outage_since is None:
            self._outage_since = now
            self._log(f"No answer about {self._application_id}, trying again for {OUTAGE_SECONDS:.0f} s: {error}")
        permanent = isinstance(error, ClusterError) and error.permanent
        if permanent or now - self._outage_since > OUTAGE_SECONDS:
            raise error


def _needs_result(reason: Reason | None, application: Application | None) -> bool:
    """Whether the cluster's word does not do in place of the job's own.

    It does for an application that has failed. But a success is of no use without what it has reached, and of one that
    the cluster has forgotten, only its result can tell whether it has succeeded.
    """
    if reason is Reason.FINISHED:
        return application is not None and application.final_status is FinalStatus.SUCCEEDED
    return reason is Reason.FORGOTTEN


def _waits(application: Application, status: JobStatus | None) -> bool:
    """Whether the gang has never been together: the application master's container is still missing, or its tasks'.

    Later on, an application may wait for containers that it has lost, or for its next master; that is no waiting in a
    queue, and its own timeouts bound it.
    """
    if status is not None and status.generation > 0:
        return False
    if application.state is not ApplicationState.RUNNING:
        return True
    return status is not None and status.state is JobState.WAITING
