"""Judging one observation of a running job after another, the same in a worker and in a triggerer."""

from __future__ import annotations

import time
from collections.abc import Callable

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.results import is_of_result
from tony_provider.runtime.clock import difference
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.watching.contact import Contact
from tony_provider.watching.observation import Observation
from tony_provider.watching.outages import outage_start
from tony_provider.watching.progress_log import ProgressLog
from tony_provider.watching.silence import Silence
from tony_provider.watching.watch_result import Reason, WatchLimits, WatchResult

FORGOTTEN_SECONDS = 30.0  # so long must the cluster not know the application before we believe it


class JobWatch:
    """Judges observations of one application until it has ended, and tells of it meanwhile.

    ``log`` is given lines for the task's log.
    """

    def __init__(
        self,
        application_id: str,
        deadlines: WatchLimits,
        log: Callable[[str], None],
        *,
        contact: Contact | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``contact`` knows who was asked and has not answered yet."""
        self.contact = contact or Contact(clock)
        self.silence = Silence(self.contact, log, clock)
        self._application_id = application_id
        self._clock = clock
        self._deadlines = deadlines
        self._log = log
        self._progress = ProgressLog()
        self._outage_since: float | None = None
        self._unreadable: RecordUnreadable | None = None
        self._unknown_since: float | None = None
        self._last_message = ""
        self._ahead: float | None = None  # seconds by which the cluster's clock is ahead; None before its first answer
        self._told_of_clock = False
        self._application: Application | None = None
        self._status: JobStatus | None = None

    def judge(self, seen: Observation | None) -> WatchResult | None:
        """The result of the watch; None while the job goes on.

        ``seen`` is None when there is no news, and only the time has gone by. A cluster or store that does not answer
        is waited for, OUTAGE_SECONDS long; then its ClusterError or StorageError is raised, and the application is left
        as it is. A status that cannot be read is done without; RecordUnreadable is raised for a result, where nothing
        else tells how the application ended.
        """
        reason = None
        self.silence.look(seen)
        if seen is not None:
            self._note_clock(seen.application)
        if seen is not None and seen.outage is not None:
            self._outage_since = outage_start(seen.outage, self._outage_since, self._clock())
            self._tell_what_the_master_says(seen)
        elif seen is not None:
            self._outage_since = None
            reason = self._look(seen)
        if reason is None and self._is_over(self._deadlines.end):
            reason = Reason.DEADLINE
        return WatchResult(reason, self._last_message, self._application, self._status) if reason else None

    def wants_look(self, seen: Observation) -> bool:
        """Whether the job itself must be looked at: its time in the queue is over, and it may still wait there."""
        return (
            self._is_over(self._deadlines.queue)
            and not seen.whole
            and (seen.status is None or not _counts_itself(seen.status))
        )

    @property
    def now(self) -> float:
        """The time by the cluster's clock, as far as it is known, in epoch seconds."""
        return time.time() + (self._ahead or 0.0)

    def _is_over(self, limit: float | None) -> bool:
        """Whether a limit is over. Not before the cluster's clock is known: another machine has set the limit."""
        return limit is not None and self._ahead is not None and self.now > limit

    def _note_clock(self, application: Application | None) -> None:
        if application is not None:
            self._ahead = application.clock_ahead
        elif self._ahead is None:
            self._ahead = 0.0  # without an answer, this machine's clock must do
        if self._ahead and not self._told_of_clock:
            self._told_of_clock = True
            self._log(
                f"The clock of this machine is {difference(-self._ahead)} the cluster's clock. Time limits are counted "
                "by the cluster's clock"
            )

    def _look(self, seen: Observation) -> Reason | None:
        self._tell_unreadable(seen.unreadable)
        self._application, self._status = seen.application, seen.newest
        reason = self._reason(seen)
        unread = self._unreadable
        if unread is not None and is_of_result(unread) and _needs_result(reason, seen.application):
            raise unread
        return reason

    def _tell_what_the_master_says(self, seen: Observation) -> None:
        """While its status cannot be read from the store."""
        if seen.application is not None and isinstance(seen.master, JobStatus):
            for line in self._progress.lines(seen.application, seen.master):
                self._log(line)

    def _tell_unreadable(self, error: RecordUnreadable | None) -> None:
        if error is not None and self._unreadable is None:
            self._log(f"Going on without the status of {self._application_id}: {error}")
        self._unreadable = error

    def _reason(self, seen: Observation) -> Reason | None:
        application, status = seen.application, seen.newest
        if application is None:
            return self._reason_unknown(status)
        self._unknown_since = None
        self._last_message = status.message if status else application.diagnostics
        for line in self._progress.lines(application, status):
            self._log(line)
        if application.is_final:
            return Reason.FINISHED
        late = seen.whole and self._is_over(self._deadlines.queue)
        return Reason.QUEUE_TIMEOUT if late and _waits(application, status) else None

    def _reason_unknown(self, status: JobStatus | None) -> Reason | None:
        """ResourceManagers forget; a result on the store is the truth then."""
        if status is not None and status.state.is_final:
            return Reason.FINISHED
        if self._unknown_since is None:
            self._unknown_since = self._clock()
            self._log(f"The cluster does not know {self._application_id}")
        return Reason.FORGOTTEN if self._clock() - self._unknown_since > FORGOTTEN_SECONDS else None


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
    queue, and its own timeouts bound it. So they do for one that was suspended: its time in the queue counts anew.
    """
    if status is not None and _counts_itself(status):
        return False
    if application.state is not ApplicationState.RUNNING:
        return True
    return status is not None and status.state is JobState.WAITING


def _counts_itself(status: JobStatus) -> bool:
    """Whether only the application master knows how long the job has been waiting for containers by now."""
    was_suspended = status.times is not None and status.times.suspended > 0
    return status.generation > 0 or was_suspended
