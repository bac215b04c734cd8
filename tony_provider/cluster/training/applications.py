"""Find applications and their trainings by ids or tags that users name.

The cluster and the staging directory must agree. Any user may give any tag to their own application, but cannot make a
directory for it among a training's. A job can make such a directory, but cannot give another application its tag.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.interface import Application, ApplicationFilter, Cluster
from tony_provider.cluster.training import results
from tony_provider.cluster.training.checkpoint_chains import TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.results import Delivered
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound

log = logging.getLogger(__name__)


@attrs.frozen
class ApplicationRef:
    """An application, and its training if that is known."""

    application_id: str
    application: Application | None  # None if the cluster does not know it (any more)
    identity: Identity | None  # None if the staging directory has no files of it


@attrs.frozen
class ApplicationFinder:
    """Finds applications by id or tag, and their trainings.

    All methods raise ClusterError and StorageError.
    """

    cluster: Cluster
    storage: Storage
    layout: Layout

    def of_application(self, application_id: str) -> ApplicationRef | None:
        """Return the application with this id, or None if neither cluster nor staging directory knows it."""
        application = self.cluster.application(application_id)
        if application is not None:
            return ApplicationRef(application_id, application, self._by_tags(application))
        identity = self._by_directory(application_id)
        return ApplicationRef(application_id, None, identity) if identity is not None else None

    def of_tag(self, tag: str) -> ApplicationRef | None:
        """Return the newest application with this tag, or None. The tag is a training's own or one that jobs name.

        Applications of the staging directory come before others of the hook's user. Other users' do not count.
        """
        known = list(self.identities())
        others = []
        for application in self.cluster.applications(ApplicationFilter(tag=tag)):
            identity = next((each for each in known if each.tag in application.tags), None)
            if identity is not None and application.id in self.ids_of(identity):
                return ApplicationRef(application.id, application, identity)
            if application.user == self.cluster.user:
                others.append(ApplicationRef(application.id, application, None))
        identity = next((each for each in known if each.tag == tag), None)
        if identity is not None and (kept := self.ids_of(identity)):
            return ApplicationRef(kept[-1], None, identity)
        return others[0] if others else None

    def live_of(self, identity: Identity) -> list[Application]:
        """Return the training's applications that have not ended, newest first."""
        found = self.cluster.applications(ApplicationFilter(live=True, tag=identity.tag))
        known = self.ids_of(identity) if found else []
        return [application for application in found if application.id in known]

    def is_of(self, identity: Identity, application: Application) -> bool:
        """Return whether the application belongs to this training."""
        return identity.tag in application.tags and application.id in self.ids_of(identity)

    def identities(self) -> Iterator[Identity]:
        """Yield the identities of all trainings that have a directory."""
        try:
            directories = self.storage.list(self.layout.jobs_dir)
        except StorageNotFound:
            return
        for directory in directories:
            if directory.is_directory and (identity := Identity.parse(directory.name)) is not None:
                yield identity

    def _by_tags(self, application: Application) -> Identity | None:
        """Return the training by the application's tags, which seldom lists more than one directory."""
        tagged = (identity for identity in self.identities() if identity.tag in application.tags)
        return next((identity for identity in tagged if application.id in self.ids_of(identity)), None)

    def _by_directory(self, application_id: str) -> Identity | None:
        for identity in self.identities():
            if application_id in self.ids_of(identity):
                return identity
        return None

    def ids_of(self, identity: Identity) -> list[str]:
        """Return the ids of the training's applications that have a directory, the newest last."""
        try:
            found = self.storage.list(self.layout.applications_dir(identity))
        except StorageNotFound:
            return []
        return [file.name for file in sorted(found, key=lambda file: file.modified_ms) if file.is_directory]


def tag_of(application: Application) -> str | None:
    """Return the tag that names the application's training, or None if no tag does."""
    return next((tag for tag in application.tags if tag.startswith(contract.TAG_PREFIX)), None)


@attrs.frozen
class PreviousApplication:
    """The last application of a training, as the cluster and the store know it."""

    application_id: str
    application: Application | None  # None if the cluster does not know it (any more), or it never existed
    status: JobStatus | None  # its result, once a readable one exists
    delivered: Delivered | None

    @property
    def is_live(self) -> bool:
        return self.application is not None and not self.application.is_final

    @property
    def has_succeeded(self) -> bool:
        """Whether it succeeded, by its own result, or by the cluster's final status if there is no result."""
        if self.status is not None and self.status.state.is_final:
            return self.status.state is JobState.SUCCEEDED
        return self.application is not None and self.application.final_status is FinalStatus.SUCCEEDED

    def __str__(self) -> str:
        """Describe the application by its id and state."""
        if self.status is not None and self.status.state.is_final:
            return f"{self.application_id} {self.status.state.value}"
        if self.application is not None:
            return f"{self.application_id} {self.application.state}"
        return f"{self.application_id}, of which the cluster knows nothing (any more) and which left no result"


def previous_application(
    cluster: Cluster, storage: Storage, layout: Layout, identity: Identity, *, remembered: str | None = None
) -> PreviousApplication | None:
    """Return the last application of a training: its owner, otherwise the one ``remembered``.

    Return None if there is neither. Raises ClusterError, StorageError.
    """
    owner = TrainingOwners(storage, layout.job_dir(identity)).newest().owner.application_id
    application_id = owner or remembered
    if application_id is None:
        return None
    directory = layout.application_dir(identity, application_id)
    # Query the cluster before the store, because an application writes its result before the cluster reports its end.
    application = cluster.application(application_id)
    if application is not None:
        finder = ApplicationFinder(cluster, storage, layout)
        # Jobs and other users may have written what a task remembers, and a job its training's owner file, so check
        # that the application is the training's. For an owner the tag is enough, because its directory may be gone.
        is_mine = identity.tag in application.tags if owner else finder.is_of(identity, application)
        if not is_mine:
            who = "the owner's file of its training names" if owner else "its task remembers"
            log.warning("%s, which %s, is none of this training's: it is left alone", application_id, who)
            return None
    status = _status(storage, directory, application)
    return PreviousApplication(application_id, application, status, results.delivered(storage, directory))


def _status(storage: Storage, directory: str, application: Application | None) -> JobStatus | None:
    try:
        return results.job_status(storage, directory)
    except RecordUnreadable as error:
        if application is None and results.is_of_result(error):
            raise  # without it, its success is unknown
        log.warning("Going by what the cluster knows: %s", error)
        return None
