"""Watch one job until it ends or a limit passes.

``JobWatch`` judges each observation, logs news, and returns how the watch ended. ``Looker`` and ``wait_in_worker``
observe the job from a worker process. ``WatchLimits`` are the time limits of a watch. ``limit_lifetime`` sets the limit
that YARN enforces.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import attrs

from tony_provider.cluster import lifetime
from tony_provider.cluster.errors import ClusterError, RecordUnreadable, logging_errors
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.settings import with_defaults
from tony_provider.cluster.training.results import is_of_result
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common.clock import difference
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable
from tony_provider.watching.kill_switch import KillSwitch
from tony_provider.watching.observation import Observation, UnansweredCalls, observe, peer_of_error
from tony_provider.watching.progress_log import OngoingProblems, ProgressLog, ReachabilityLog
from tony_provider.watching.task_output import OutputDisplay
from tony_provider.watching.token_refresher import TokenRefresher

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


_DEFER_SLACK = 300.0  # seconds after the deadline until the deferral expires: a triggerer may be restarting


class WatchEnd(StrEnum):
    """Why a watch has ended."""

    FINISHED = "finished"  # the application ended, with success or failure
    FORGOTTEN = "forgotten"  # the cluster does not know the application, and there is no result of it
    DEADLINE = "deadline"  # the deadline of this try of the task has passed
    QUEUE_TIMEOUT = "queue_timeout"


@attrs.frozen
class WatchResult:
    """How a watch has ended, with the last observation of the application."""

    reason: WatchEnd
    last_message: str = ""  # the job's last message about its work or wait
    application: Application | None = None  # as last seen
    status: JobStatus | None = None  # as last seen


@attrs.frozen
class WatchLimits:
    """The latest end of a watch, in epoch seconds by the cluster's clock. None means no limit.

    The cluster's clock is used because the processes of Airflow may run on machines with different clocks.
    """

    end: float | None = None  # latest end of the wait in this try of the task
    queue: float | None = None  # latest end of the job's wait for its first complete set of containers

    def next_after(self, now: float) -> float | None:
        """Return the earliest limit after ``now``, or None."""
        return min((each for each in (self.end, self.queue) if each is not None and each > now), default=None)


def deferral_timeout(end: float, now: float) -> timedelta:
    """Return the timeout of a deferral for a task that may wait until ``end``.

    ``end`` and ``now`` are epoch seconds of one clock. The trigger enforces ``end`` itself, because Airflow calls no
    code when a deferral expires. So this timeout is later, and takes effect only if no trigger runs.
    """
    return timedelta(seconds=max(0.0, end - now) + _DEFER_SLACK)


T = TypeVar("T")

OUTAGE_SECONDS = 600.0  # seconds that the cluster may be unreachable before a try of the task gives up
_PAUSE = 5.0  # seconds between two calls during an outage


def call_through_outage(call: Callable[[], T], log: Logger) -> T:
    """Call ``call`` until the cluster and the store answer, within the limit for an outage, and return its result.

    Blocks. Raises the ClusterError or StorageError of the last call.
    """
    deadline = time.monotonic() + OUTAGE_SECONDS
    troubles = OngoingProblems(log.warning)
    while True:
        try:
            found = call()
        except (ClusterError, StorageError) as error:
            passing = not error.permanent if isinstance(error, ClusterError) else isinstance(error, StorageUnreachable)
            if not passing or time.monotonic() >= deadline:
                raise
            troubles.goes_on(call, f"{peer_of_error(error)} does not answer", str(error))
            time.sleep(_PAUSE)
        else:
            troubles.is_over(call, "The cluster and the store answer again")
            return found


def outage_start(error: ClusterError | StorageError, since: float | None, now: float) -> float:
    """Return the start of the outage that ``error`` belongs to: ``since`` if it began before, otherwise ``now``.

    Times are seconds of one clock. Raises the error if it is permanent, or if the outage exceeds OUTAGE_SECONDS.
    """
    since = now if since is None else since
    permanent = isinstance(error, ClusterError) and error.permanent
    if permanent or now - since > OUTAGE_SECONDS:
        raise error
    return since


FORGOTTEN_SECONDS = 30.0  # seconds for which an application must be unknown before it counts as forgotten


class JobWatch:
    """Judges observations of one application until it has ended, and logs news about it.

    ``log`` is called with lines for the task's log.
    """

    def __init__(
        self,
        application_id: str,
        deadlines: WatchLimits,
        log: Callable[[str], None],
        *,
        contact: UnansweredCalls | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``contact`` records calls that have not been answered yet."""
        self.contact = contact or UnansweredCalls(clock)
        self.silence = ReachabilityLog(self.contact, log, clock)
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
        """Return the result of the watch, or None while the job continues.

        ``seen`` is None if only time has passed since the last call. If the cluster or store does not answer, the wait
        continues for OUTAGE_SECONDS. Then the ClusterError or StorageError is raised, and the application continues.

        An unreadable status does not end the watch. An unreadable result raises RecordUnreadable if nothing else shows
        how the application ended.
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
            reason = WatchEnd.DEADLINE
        return WatchResult(reason, self._last_message, self._application, self._status) if reason else None

    def wants_look(self, seen: Observation) -> bool:
        """Whether to inspect the job now, because its queue limit has passed and it may still wait for containers."""
        return (
            self._is_over(self._deadlines.queue)
            and not seen.whole
            and (seen.status is None or not _counts_itself(seen.status))
        )

    @property
    def now(self) -> float:
        """Epoch seconds by the cluster's clock, or by this machine's clock while the cluster's is unknown."""
        return time.time() + (self._ahead or 0.0)

    def _is_over(self, limit: float | None) -> bool:
        """Whether a limit has passed. False until the cluster's clock is known, since another machine set the limit."""
        return limit is not None and self._ahead is not None and self.now > limit

    def _note_clock(self, application: Application | None) -> None:
        if application is not None:
            self._ahead = application.clock_ahead
        elif self._ahead is None:
            self._ahead = 0.0  # without an answer, use this machine's clock
        if self._ahead and not self._told_of_clock:
            self._told_of_clock = True
            self._log(
                f"The clock of this machine is {difference(-self._ahead)} the cluster's clock. Time limits are counted "
                "by the cluster's clock"
            )

    def _look(self, seen: Observation) -> WatchEnd | None:
        self._tell_unreadable(seen.unreadable)
        self._application, self._status = seen.application, seen.newest
        reason = self._reason(seen)
        unread = self._unreadable
        if unread is not None and is_of_result(unread) and _needs_result(reason, seen.application):
            raise unread
        return reason

    def _tell_what_the_master_says(self, seen: Observation) -> None:
        """Log the master's own status while the status on the store is unavailable."""
        if seen.application is not None and isinstance(seen.master, JobStatus):
            for line in self._progress.lines(seen.application, seen.master):
                self._log(line)

    def _tell_unreadable(self, error: RecordUnreadable | None) -> None:
        if error is not None and self._unreadable is None:
            self._log(f"Continuing without the status of {self._application_id}: {error}")
        self._unreadable = error

    def _reason(self, seen: Observation) -> WatchEnd | None:
        application, status = seen.application, seen.newest
        if application is None:
            return self._reason_unknown(status)
        self._unknown_since = None
        self._last_message = status.message if status else application.diagnostics
        for line in self._progress.lines(application, status):
            self._log(line)
        if application.is_final:
            return WatchEnd.FINISHED
        late = seen.whole and self._is_over(self._deadlines.queue)
        return WatchEnd.QUEUE_TIMEOUT if late and _waits(application, status) else None

    def _reason_unknown(self, status: JobStatus | None) -> WatchEnd | None:
        """Judge an application that the ResourceManager does not know or has forgotten, by its result on the store."""
        if status is not None and status.state.is_final:
            return WatchEnd.FINISHED
        if self._unknown_since is None:
            self._unknown_since = self._clock()
            self._log(f"The cluster does not know {self._application_id}")
        return WatchEnd.FORGOTTEN if self._clock() - self._unknown_since > FORGOTTEN_SECONDS else None


def _needs_result(reason: WatchEnd | None, application: Application | None) -> bool:
    """Whether the job's own result is needed, because the cluster's report about the end is not enough.

    For a failed application, the report is enough. A successful task must return the job's results. Of a forgotten
    application, only the result shows whether it succeeded.
    """
    if reason is WatchEnd.FINISHED:
        return application is not None and application.final_status is FinalStatus.SUCCEEDED
    return reason is WatchEnd.FORGOTTEN


def _waits(application: Application, status: JobStatus | None) -> bool:
    """Whether the job still waits for its first complete set of containers, including the application master's.

    A wait for replacements of lost containers, or for the next master, does not count: it has its own timeouts. A
    suspended application has its own queue time, which starts when it resumes.
    """
    if status is not None and _counts_itself(status):
        return False
    if application.state is not ApplicationState.RUNNING:
        return True
    return status is not None and status.state is JobState.WAITING


def _counts_itself(status: JobStatus) -> bool:
    """Whether the job has started or was suspended. Then only its master measures waits for containers."""
    was_suspended = status.times is not None and status.times.suspended > 0
    return status.generation > 0 or was_suspended


MEANWHILE = 1.0  # seconds between two log and cancellation checks during a slow observation


class Looker:
    """Observes a job in a separate thread, judges the observations, and reports output and token refreshes.

    An observation may block for minutes. A process does not wait for the thread at exit.
    """

    def __init__(
        self, job: TonyJob, watch: JobWatch, report: Callable[[str], None], output: OutputDisplay | None = None
    ) -> None:
        """``report`` is called with lines for the log. ``output``: which task output they contain; None for none."""
        self._job = job
        self._watch = watch
        self._report = report
        self._output = output
        self._refresher = TokenRefresher()
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._seen: queue.SimpleQueue[Observation | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tony-looker", daemon=True)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted.put(False)

    def until_the_end(
        self,
        pause: Callable[[], None],
        meanwhile: Callable[[], None],
        seen: Callable[[Observation | None], None] = lambda _: None,
    ) -> WatchResult:
        """Observe the job until the watch ends, and return the result.

        ``pause`` is called between two observations, ``meanwhile`` repeatedly during a slow observation, and ``seen``
        with each observation. An exception of any of them ends the watch.
        """
        while True:
            result, observation = self._judge(meanwhile)
            for line in (*self._refresher.lines(), *(self._output.lines() if self._output is not None else ())):
                self._report(line)
            seen(observation)
            if result is not None:
                return result
            pause()

    def _judge(self, meanwhile: Callable[[], None]) -> tuple[WatchResult | None, Observation | None]:
        """Observe the job once. Return the watch's result, if there is one, and the observation."""
        self._wanted.put(True)
        while True:
            try:
                seen = self._seen.get(timeout=MEANWHILE)
            except queue.Empty:
                meanwhile()
                if (ending := self._watch.judge(None)) is not None:
                    return ending, None
            else:
                if isinstance(seen, BaseException):
                    raise seen
                return self._watch.judge(seen), seen

    def _run(self) -> None:
        while self._wanted.get():
            try:
                self._seen.put(self._look())
            except BaseException as fault:  # noqa: BLE001 - raised in the waiting thread
                self._seen.put(fault)

    def _look(self) -> Observation:
        """Observe the job, fetch its output, and send it a newer token, as far as they are due."""
        seen = observe(self._job, contact=self._watch.contact, ask_master=self._watch.silence.wants_master)
        output = self._output
        if output is not None and seen.runs and seen.newest is not None and output.is_due(seen.newest):
            output.look(self._job, seen.newest)
        if self._refresher.is_due(seen):
            self._refresher.renew(self._job, seen)
        return seen


FIRST_POLL = 0.1  # seconds; the pauses grow by POLL_GROWTH up to the task's poll_interval
POLL_GROWTH = 1.02  # the end is detected with a delay of at most a fiftieth of the job's time
LIFETIME_SLACK = 600.0  # seconds from the deadline to YARN's limit, so that the trigger and Airflow act first


def deadlines_of(
    job: TonyJob,
    specification: JobSpec,
    *,
    started: datetime | None,
    execution_timeout: timedelta | None,
) -> WatchLimits:
    """Return the limits of a try's wait for its application.

    ``execution_timeout`` counts from the time when this try ``started``, the job's queue timeout from its submission.
    """
    timeouts = specification.timeouts
    if not execution_timeout and timeouts.queue is None:
        return WatchLimits()
    application = job.application()
    local = time.time()
    now = local + (application.clock_ahead if application else 0.0)  # by the cluster's clock
    end = queue = None
    if execution_timeout:
        # A start in the future was written by a machine with another clock.
        gone = max(0.0, local - started.timestamp()) if started else 0.0
        end = now - gone + execution_timeout.total_seconds()
    if timeouts.queue is not None:
        submitted = application.started_ms / 1000 if application and application.started_ms else now
        queue = submitted + timeouts.queue
    return WatchLimits(end, queue)


def limit_lifetime(job: TonyJob, specification: JobSpec, end: float, *, attached: bool, log: Logger) -> None:
    """Have YARN end the application soon after ``end``, in case all of Airflow is gone.

    ``end`` is in epoch seconds by the cluster's clock. ``attached`` means that an earlier try has started the
    application. This limit replaces the limit of that try, but the job's own limits still apply.
    """
    # Log any exception, because the job can modify the data that is read here.
    with logging_errors(log.warning, "The cluster did not set a time limit for %s", job):
        application = job.application()
        if application is None or application.is_final or (attached and _is_ending(job)):
            return
        latest = end + LIFETIME_SLACK
        timeouts = with_defaults(specification, job.hook.settings).timeouts
        if (own := lifetime.seconds_left(timeouts, application.started_ms / 1000)) is not None:
            latest = min(latest, application.started_ms / 1000 + own)
        now = time.time() + application.clock_ahead
        job.limit(latest - now, "the task's execution_timeout is over", prolong=True)


def _is_ending(job: TonyJob) -> bool:
    """Whether the job is stopping: YARN already has the limit for its end, which must not change."""
    status = job.status()
    return status is not None and status.state is JobState.FINISHING


def wait_in_worker(
    looker: Looker, switch: KillSwitch, poll_interval: float, raise_if_killed: Callable[[], None]
) -> WatchResult:
    """Observe the job until the watch ends, and return its result.

    ``raise_if_killed`` is called after each pause, and during slow observations. It must raise if the switch was
    pulled.
    """
    seconds = min(FIRST_POLL, poll_interval)

    def pause() -> None:
        nonlocal seconds
        switch.sleep(seconds)
        raise_if_killed()
        seconds = min(seconds * POLL_GROWTH, poll_interval)

    with looker:
        return looker.until_the_end(pause, raise_if_killed)
