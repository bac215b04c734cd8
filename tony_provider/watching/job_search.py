"""The search for the application that a sensor looks at: by its id, by a tag, or by its training, of which each retry
has another one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import cast

import attrs

from tony_provider.cluster.base import Application
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.job_poller import FollowedJob
from tony_provider.watching.observation import Observation, observe, observe_status

log = logging.getLogger(__name__)


@attrs.frozen
class JobTarget:
    """What a sensor was told to look at: exactly one of an application id, a tag and a training's identity."""

    application_id: str | None = None
    tag: str | None = None  # of YARN's: a training's own, or one that the job names
    identity: Identity | None = None  # of a training

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
    """The application that a search has found, and the training that it is of."""

    application_id: str
    identity: Identity | None  # None: nothing of it is in the staging directory, so that its status cannot be read


@attrs.frozen
class JobObservation(Observation):
    """An observation, and the application that it is of: what a sensor judges."""

    found: FoundApplication | None = None  # None: there is no such application, as far as anybody knows

    @property
    def is_live(self) -> bool:
        return self.application is not None and not self.application.is_final

    @property
    def has_ended(self) -> bool:
        """Whether the application has ended, by the cluster's word; by the job's result where that has forgotten it."""
        if self.application is not None:
            return self.application.is_final
        return self.status is not None and self.status.state.is_final


class JobSearch:
    """Finds the target's application and looks at it: at one until it has ended, then at the next one, if any."""

    def __init__(self, target: JobTarget) -> None:
        self.target = target
        self.known: FoundApplication | None = None
        self._stranger: FoundApplication | None = None  # that was told of

    def look(self, hook: TonyHook) -> JobObservation:
        """Look once.

        Blocks for as long as the cluster takes to answer. Raises nothing of the cluster's or the store's.
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
        seen = observe(hook, found.identity, found.application_id)
        if seen.application is not None and not self.target.is_hit_by(seen.application):
            if found != self._stranger:
                log.warning("%s, which the store calls the %s, is another one", found.application_id, self.target)
            self._stranger = found
            return JobObservation()
        return _observation(seen, found)


class PolledJob(FollowedJob):
    """A sensor's job as a poller follows it: a FollowedJob whose application is searched for, as by JobSearch.

    The poller's list tells of a new application without a request of its own.
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
        return _observation(observe_status(hook, found.identity, found.application_id, newest.application), found)

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
    """The one that runs, else the newest. Raises ClusterError, StorageError."""
    if target.identity is not None:
        if live := hook.find(target.identity):
            return FoundApplication(live[0].id, target.identity)
        owner = hook.newest_application(target.identity)
        return FoundApplication(owner, target.identity) if owner is not None else None
    there = hook.application_ref(application_id=target.application_id or "", tag=target.tag or "")
    if there is not None and there.identity is None and target.tag is not None:  # the tag is one that the job names
        there = hook.application_ref(application_id=there.application_id) or there
    return FoundApplication(there.application_id, there.identity) if there is not None else None
