"""Poll many jobs from one event loop: one application list for all of them, and job details in rotation.

A triggerer may wait for a thousand jobs. One request per job every few seconds would overload the ResourceManager and
the store. Therefore, all jobs of a connection share one poller, which lists the applications that have not ended. If a
job is missing from the list, it has ended, and the poller inspects it immediately. The poller reads steps and metrics
from the store, and fetches task output from the application masters. One rate limit applies to both.

All calls block, so they run in threads of the poller. Thus a cluster that hangs does not delay the triggers of other
clusters.

The module also contains the search for the application that a sensor watches.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import attrs

from tony_provider import configuration
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.compat import in_thread
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable
from tony_provider.watching.observation import (
    Observation,
    Peer,
    UnansweredCalls,
    observe,
    observe_status,
    peer_of_error,
)
from tony_provider.watching.task_output import OutputDisplay
from tony_provider.watching.token_refresher import TokenRefresher

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS = 4  # for requests about single jobs; the list, task output and token refreshes have one more thread each
_PAUSE = 1.0  # seconds between two checks for due output or tokens while nothing is due


@attrs.frozen
class PollingPace:
    """Polling rates for the cluster and the store, from the section ``[tony]`` of Airflow's configuration."""

    list_interval: float  # seconds between two requests for the application list
    details_per_second: float

    @classmethod
    def configured(cls) -> PollingPace:
        """Return the configured pace. Raises ConfigurationProblem."""
        return cls(configuration.list_interval(), configuration.details_per_second())


class FollowedJob:
    """A job that a poller follows for one waiter. The waiter receives the newest observation, never a backlog."""

    def __init__(
        self,
        identity: Identity | None,
        application_id: str,
        interval: float,
        output: OutputDisplay | None = None,
        renewal: TokenRefresher | None = None,
    ) -> None:
        self.identity = identity
        self.application_id = application_id
        self.interval = interval  # minimum seconds between two reads of the job's details
        self.looked_at = float("-inf")  # last read of its details, by the event loop's clock
        self.output = output  # which task output to show; None for none
        self.output_read_at = float("-inf")  # last read of its output, by the event loop's clock
        self.renewal = renewal  # refreshes the store token; None if this waiter does not refresh it
        self.wanted = False  # whether this job must be inspected before all others
        self.ask_master = False  # whether to ask the master, because the status on the store is stale or unavailable
        self.contact = UnansweredCalls()  # replaced by the poller's object when the poller follows the job
        self._newest = Observation()
        self._cluster_outage: ClusterError | StorageError | None = None
        self._store_outage: ClusterError | StorageError | None = None
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    async def next(self, seconds: float | None) -> Observation | None:
        """Wait for an observation that is newer than the last call, and return it. Return None after ``seconds``.

        Raises the exception that ended the poller.
        """
        try:
            await wait_with_timeout(self._news.wait(), seconds)
        except TimeoutError:
            return None
        self._news.clear()
        if self._failure is not None:
            raise self._failure
        return self._newest

    @property
    def application(self) -> Application | None:
        """The application as last seen. None if it was not seen yet, or if the cluster does not know it."""
        return self._newest.application

    def job(self, hook: TonyHook) -> TonyJob:
        """Return a handle of the job that sends its requests through ``hook``."""
        return TonyJob(hook, self.application_id, self.identity)

    def look(self, hook: TonyHook) -> Observation:
        """Query the cluster and the store about this job. Blocks. Cluster and store errors are in the observation."""
        return observe(self.job(hook), contact=self.contact, ask_master=self.ask_master)

    def is_among(self, live: Mapping[str, Application]) -> bool:
        """Record the job's entry in the list of ``live`` applications.

        Return False if the job is missing from the list: it must be inspected immediately.
        """
        if (application := live.get(self.application_id)) is None:
            return False
        self.is_listed(application)
        return True

    @property
    def has_turn(self) -> bool:
        """Whether the job's details must be polled in addition to the list."""
        return self.application is not None

    @property
    def has_output(self) -> bool:
        """Whether the poller must fetch task output from the job's master."""
        return self._newest.runs and self.output is not None and self.output.is_due(self._newest.newest)

    def read_output(self, hook: TonyHook) -> None:
        """Fetch new task output from the job's master. Blocks. Handles cluster errors."""
        if self.output is not None and (status := self._newest.newest) is not None:
            self.output.look(self.job(hook), status)

    @property
    def needs_token(self) -> bool:
        """Whether the job needs a newer store token now."""
        return self.renewal is not None and self.renewal.is_due(self._newest)

    def renew_token(self, hook: TonyHook) -> None:
        """Send the job a newer store token. Blocks. Handles cluster and store errors."""
        if self.renewal is not None:
            self.renewal.renew(self.job(hook), self._newest)

    def read_status(self, hook: TonyHook) -> Observation:
        """Read the job's status from the store. Its application is known from the list, and is not queried again."""
        return observe_status(self.job(hook), self.application, contact=self.contact, ask_master=self.ask_master)

    def is_listed(self, application: Application) -> None:
        """Record the listed application, and keep the status of the last observation."""
        self._cluster_outage = None
        self._tell(attrs.evolve(self._newest, application=application, whole=False))

    def is_out_of_reach(self, outage: ClusterError | StorageError) -> None:
        """Record that the list could not be fetched. An answer of the store does not end this outage."""
        self._cluster_outage = outage
        self._tell(attrs.evolve(self._newest, whole=False))

    def is_seen(self, observation: Observation) -> None:
        """Record an observation of both the cluster and the store."""
        if observation.outage is not None and peer_of_error(observation.outage) is Peer.CLUSTER:
            self._cluster_outage = observation.outage
        else:
            self._cluster_outage, self._store_outage = None, observation.outage
        self._tell(self._of_before(observation) if observation.outage else observation)

    def is_read(self, observation: Observation) -> None:
        """Record an observation of the status alone. A newer list may have arrived in the meantime."""
        outage = observation.outage
        self._store_outage = outage if outage is not None and peer_of_error(outage) is Peer.STORE else None
        if observation.outage:
            seen = self._of_before(observation)
        else:
            seen = attrs.evolve(observation, application=self.application)
        self._tell(attrs.evolve(seen, whole=self._cluster_outage is None and observation.outage is None))

    def store_answers(self) -> None:
        """Record that the store answers for other jobs.

        If the whole store was unreachable, this ends the outage for this job before the next read of its status.
        """
        if isinstance(self._store_outage, StorageUnreachable):
            self._store_outage = None

    def has_failed(self, failure: BaseException) -> None:
        self._failure = failure
        self._news.set()

    def _of_before(self, observation: Observation) -> Observation:
        """Return the last observation, updated with the parts that are available now."""
        application = observation.application or self.application
        return attrs.evolve(self._newest, application=application, master=observation.master, whole=False)

    def _tell(self, observation: Observation) -> None:
        outages = (self._cluster_outage, self._store_outage)
        self._newest = attrs.evolve(observation, outages=tuple(each for each in outages if each is not None))
        self._news.set()


class JobPoller:
    """Polls all jobs of one connection in one event loop.

    :param open_hook: creates the poller's hook. After an outage, a new hook replaces the old one once the cluster
        answers, because the connection may have been changed.
    """

    def __init__(self, open_hook: Callable[[], TonyHook], pace: PollingPace) -> None:
        self._open_hook = open_hook
        self._hook = self._next_hook = open_hook()
        self._pace = pace
        self.contact = UnansweredCalls()
        self.clock_ahead = 0.0  # seconds by which the cluster's clock is ahead of this machine's, as last measured
        self._jobs: set[FollowedJob] = set()
        self._urgent: deque[FollowedJob] = deque()
        self._work = asyncio.Event()  # set when there is an urgent request or a new job
        self._turn = asyncio.Lock()  # held during the pause before each request for details, to limit their rate
        self._threads = ThreadPoolExecutor(_THREADS + 3, thread_name_prefix="tony-poller")
        self._task: asyncio.Task[None] | None = None

    # -- its jobs ----------------------------------------------------------------------------------------------------

    def follow(self, job: FollowedJob) -> None:
        self._jobs.add(job)
        job.contact = self.contact
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="tony-poller")
            self._task.add_done_callback(self._over)

    def leave(self, job: FollowedJob) -> bool:
        """Stop following ``job``. Return whether no job is left."""
        self._jobs.discard(job)
        return not self._jobs

    @property
    def has_failed(self) -> bool:
        return self._task is not None and self._task.done()

    def hurry(self, job: FollowedJob) -> None:
        """Have ``job`` inspected before all others."""
        if not job.wanted:
            job.wanted = True
            self._urgent.append(job)
            self._work.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for hook in {self._hook, self._next_hook}:
            hook.close()

    def _over(self, task: asyncio.Task[None]) -> None:
        """Report an unexpected end of the polling task to all waiters. Normally, only its cancellation ends it."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            for job in self._jobs:
                job.has_failed(failure)

    # -- its work ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._list())
                for _ in range(_THREADS):
                    group.create_task(self._look_at_urgent())
                group.create_task(self._look_in_turn())
                group.create_task(self._read_output_in_turn())
                group.create_task(self._renew_tokens())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _list(self) -> None:
        while True:
            try:
                live = {each.id: each for each in await self._in_thread(self._live)}
            except (ClusterError, StorageError) as outage:
                for job in self._jobs:
                    job.is_out_of_reach(outage)
                failed, self._next_hook = self._next_hook, self._open_hook()
                await self._close_unless_used(failed)
            else:
                # Use the new hook only now: some hooks must query the cluster before they can use the store.
                former, self._hook = self._hook, self._next_hook
                await self._close_unless_used(former)
                for job in self._jobs:
                    if not job.is_among(live):
                        self.hurry(job)
            await asyncio.sleep(self._pace.list_interval)

    async def _close_unless_used(self, hook: TonyHook) -> None:
        if hook is not self._hook:
            await self._in_thread(hook.close)

    def _live(self) -> list[Application]:
        hook = self._next_hook
        with self.contact.asking(Peer.CLUSTER):
            live = hook.live()
        self.clock_ahead = hook.now() - time.time()
        return live

    async def _look_at_urgent(self) -> None:
        while True:
            while self._urgent:
                job = self._urgent.popleft()
                job.wanted = False
                if job in self._jobs:
                    await self._see(job, job.look, job.is_seen)
            self._work.clear()
            await self._work.wait()

    async def _look_in_turn(self) -> None:
        """Read the status of the job whose last read is the oldest, among those whose interval has passed."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._next_turn()
            waiting = (job for job in self._jobs if job.has_turn)
            due = (job for job in waiting if clock() - job.looked_at >= job.interval)
            if (oldest := min(due, key=lambda job: job.looked_at, default=None)) is not None:
                await self._see(oldest, oldest.read_status, oldest.is_read)

    async def _read_output_in_turn(self) -> None:
        """Fetch output for the job whose last fetch is the oldest. A separate loop, because masters may hang."""
        clock = asyncio.get_running_loop().time
        while True:
            latest = clock()
            by_age = sorted(self._jobs, key=lambda job: job.output_read_at)
            due = (job for job in by_age if latest - job.output_read_at >= job.interval and job.has_output)
            if (oldest := next(due, None)) is None:
                await asyncio.sleep(_PAUSE)
                continue
            await self._next_turn()
            await self._read_output(oldest)

    async def _renew_tokens(self) -> None:
        """Refresh tokens one after the other. Each refresh needs the NameNode and a master, and none is urgent."""
        while True:
            for job in [job for job in self._jobs if job.needs_token]:
                try:
                    await self._in_thread(partial(job.renew_token, self._hook))
                except Exception as fault:  # noqa: BLE001 - a fault of this one job, reported to its waiter
                    job.has_failed(fault)
            await asyncio.sleep(_PAUSE)

    async def _read_output(self, job: FollowedJob) -> None:
        job.output_read_at = asyncio.get_running_loop().time()
        try:
            await self._in_thread(lambda: job.read_output(self._hook))
        except Exception as fault:  # noqa: BLE001 - a fault of this one job, reported to its waiter
            job.has_failed(fault)

    async def _next_turn(self) -> None:
        async with self._turn:
            await asyncio.sleep(1 / self._pace.details_per_second)

    async def _see(
        self, job: FollowedJob, look: Callable[[TonyHook], Observation], tell: Callable[[Observation], None]
    ) -> None:
        job.looked_at = asyncio.get_running_loop().time()
        try:
            observation = await self._in_thread(partial(self._look_at, look))
        except Exception as fault:  # noqa: BLE001 - a fault of this one job, reported to its waiter
            job.has_failed(fault)
            return
        if observation.outage is None:
            for each in self._jobs:
                each.store_answers()
        tell(observation)

    def _look_at(self, look: Callable[[TonyHook], Observation]) -> Observation:
        hook = self._hook
        observation = look(hook)
        if observation.application is not None:
            self.clock_ahead = hook.now() - time.time()
        return observation

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await in_thread(call, self._threads)


_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str | None], JobPoller]] = WeakKeyDictionary()
_closing: set[asyncio.Task[None]] = set()  # close tasks of unused pollers, until they have ended


@asynccontextmanager
async def following(tony_conn_id: str, proxy_user: str | None, job: FollowedJob) -> AsyncIterator[JobPoller]:
    """Context manager in which ``job`` is polled by the only poller of this connection and event loop."""
    pollers = _pollers.setdefault(asyncio.get_running_loop(), {})
    key = (tony_conn_id, proxy_user)
    if (poller := pollers.get(key)) is None or poller.has_failed:
        poller = pollers[key] = JobPoller(lambda: TonyHook(tony_conn_id, proxy_user), PollingPace.configured())
    poller.follow(job)
    try:
        yield poller
    finally:
        if poller.leave(job):
            if pollers.get(key) is poller:
                del pollers[key]
            closing = asyncio.get_running_loop().create_task(poller.close(), name="tony-poller-close")
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)


@attrs.frozen
class JobTarget:
    """The job that a sensor watches, given by exactly one of application ID, tag and training identity."""

    application_id: str | None = None
    tag: str | None = None  # YARN tag of a training, or one of the job's own ``tags``
    identity: Identity | None = None

    def __str__(self) -> str:
        if self.application_id is not None:
            return self.application_id
        return f"application with the tag {self.identity.tag if self.identity is not None else self.tag}"

    def is_hit_by(self, application: Application) -> bool:
        if self.application_id is not None:
            return application.id == self.application_id
        return (self.identity.tag if self.identity is not None else self.tag) in application.tags


@attrs.frozen
class FoundApplication:
    """The application that a search has found, and its training."""

    application_id: str
    identity: Identity | None  # None if the job's files, and thus its status, are not in the staging directory

    def job(self, hook: TonyHook) -> TonyJob:
        return TonyJob(hook, self.application_id, self.identity)


@attrs.frozen
class JobObservation(Observation):
    """An observation of a sensor's job, with the application that was observed."""

    found: FoundApplication | None = None  # None if no application of the target is known

    @property
    def is_live(self) -> bool:
        return self.application is not None and not self.application.is_final

    @property
    def has_ended(self) -> bool:
        """Whether the application has ended, by the cluster's report, or by the job's result if YARN forgot the job."""
        if self.application is not None:
            return self.application.is_final
        return self.status is not None and self.status.state.is_final


class JobSearch:
    """Finds and observes the target's application. After its end, continues with the target's next application."""

    def __init__(self, target: JobTarget) -> None:
        self.target = target
        self.known: FoundApplication | None = None
        self._stranger: FoundApplication | None = None  # non-matching application, kept so that it is logged once

    def look(self, hook: TonyHook) -> JobObservation:
        """Observe the job once.

        Blocks until the cluster answers. Cluster and store errors are in the observation.
        """
        try:
            return self._look(hook)
        except (ClusterError, StorageError) as error:
            return JobObservation(outages=(error,), found=self.known)

    def _look(self, hook: TonyHook) -> JobObservation:
        seen = self._observe(hook, self.known) if self.known is not None else JobObservation()
        if seen.is_live or seen.outage is not None or (self.known is not None and self.target.application_id):
            return seen
        found = _find(hook, self.target)
        if found is None or found == self.known:
            return seen
        self.known = found
        return self._observe(hook, found)

    def _observe(self, hook: TonyHook, found: FoundApplication) -> JobObservation:
        seen = observe(found.job(hook))
        if seen.application is not None and not self.target.is_hit_by(seen.application):
            if found != self._stranger:
                log.warning(
                    "The store names %s as the %s, but the tags of that application do not match",
                    found.application_id,
                    self.target,
                )
            self._stranger = found
            return JobObservation()
        return _observation(seen, found)


class PolledJob(FollowedJob):
    """A sensor's job that a poller follows: a FollowedJob that finds its application like JobSearch.

    It detects a new application of the target in the poller's list, without a further request.
    """

    def __init__(self, target: JobTarget, interval: float) -> None:
        super().__init__(target.identity, target.application_id or "", interval)
        self._search = JobSearch(target)
        self._newest = JobObservation()

    async def next(self, seconds: float | None) -> JobObservation | None:
        return cast("JobObservation | None", await super().next(seconds))

    def look(self, hook: TonyHook) -> Observation:
        return self._search.look(hook)

    @property
    def has_turn(self) -> bool:
        return True

    def read_status(self, hook: TonyHook) -> Observation:
        newest = cast(JobObservation, self._newest)
        if newest.found is None or not newest.is_live:
            return self._search.look(hook)
        found = newest.found
        return _observation(observe_status(found.job(hook), newest.application), found)

    def is_read(self, observation: Observation) -> None:
        newest, read = cast(JobObservation, self._newest), cast(JobObservation, observation)
        if newest.is_live and newest.found == read.found:
            super().is_read(read)
        else:
            self.is_seen(read)

    def is_among(self, live: Mapping[str, Application]) -> bool:
        newest = cast(JobObservation, self._newest)
        if newest.found is not None and (application := live.get(newest.found.application_id)) is not None:
            self.is_listed(application)
            return True
        return not newest.is_live and not any(map(self._search.target.is_hit_by, live.values()))


def _observation(seen: Observation, found: FoundApplication) -> JobObservation:
    return JobObservation(**attrs.asdict(seen, recurse=False), found=found)


def _find(hook: TonyHook, target: JobTarget) -> FoundApplication | None:
    """Return the running application, otherwise the newest. Raises ClusterError, StorageError."""
    if target.identity is not None:
        if live := hook.find(target.identity):
            return FoundApplication(live[0].id, target.identity)
        owner = hook.newest_application(target.identity)
        return FoundApplication(owner, target.identity) if owner is not None else None
    there = hook.application_ref(application_id=target.application_id or "", tag=target.tag or "")
    if there is not None and there.identity is None and target.tag is not None:  # the tag is from the job's ``tags``
        there = hook.application_ref(application_id=there.application_id) or there
    return FoundApplication(there.application_id, there.identity) if there is not None else None
