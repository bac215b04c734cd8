"""An application and its training, looked up by an id or a tag that people name.

The cluster and the staging directory are asked, and have to agree. Anybody may give an application of their own any
tag, but makes no directory for it among a training's; and a job may do that, but gives no other application its tag.
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


@attrs.frozen
class ApplicationRef:
    """An application, and the training that it is of as far as that is known."""

    application_id: str
    application: Application | None  # None: the cluster does not know it (any more)
    identity: Identity | None  # None: nothing of it is in the staging directory


@attrs.frozen
class ApplicationFinder:
    """Finds applications by id or tag, and the trainings that they are of.

    All methods raise ClusterError and StorageError.
    """

    cluster: Cluster
    storage: Storage
    layout: Layout

    def of_application(self, application_id: str) -> ApplicationRef | None:
        """The application with this id; None when neither the cluster nor the staging directory knows it."""
        application = self.cluster.application(application_id)
        if application is not None:
            return ApplicationRef(application_id, application, self._by_tags(application))
        identity = self._by_directory(application_id)
        return ApplicationRef(application_id, None, identity) if identity is not None else None

    def of_tag(self, tag: str) -> ApplicationRef | None:
        """The newest application with this tag, a training's own or one that jobs name; None when there is none.

        Those of the staging directory come before others of the hook's user; strangers' do not count.
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
        """The applications of this training that have not ended, newest first."""
        found = self.cluster.applications(ApplicationFilter(live=True, tag=identity.tag))
        known = self.ids_of(identity) if found else []
        return [application for application in found if application.id in known]

    def is_of(self, identity: Identity, application: Application) -> bool:
        """Whether the application is one of this training's."""
        return identity.tag in application.tags and application.id in self.ids_of(identity)

    def identities(self) -> Iterator[Identity]:
        """The identities of all trainings that have a directory."""
        try:
            directories = self.storage.list(self.layout.jobs_dir)
        except StorageNotFound:
            return
        for directory in directories:
            if directory.is_directory and (identity := Identity.parse(directory.name)) is not None:
                yield identity

    def _by_tags(self, application: Application) -> Identity | None:
        """Seldom more than one directory is looked into, where ``_by_directory`` does it with all."""
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
    """The tag that names the application's training; None for an application of something else."""
    return next((tag for tag in application.tags if tag.startswith(contract.TAG_PREFIX)), None)


log = logging.getLogger(__name__)


@attrs.frozen
class PreviousApplication:
    """The application that a training has started last, with what the cluster and the store know of it."""

    application_id: str
    application: Application | None  # None: the cluster does not know it (any more), or it never was
    status: JobStatus | None  # its result, once there is one that can be read
    delivered: Delivered | None

    @property
    def is_live(self) -> bool:
        return self.application is not None and not self.application.is_final

    @property
    def has_succeeded(self) -> bool:
        """Whether it succeeded. Its own result is the truth; the cluster's word counts where there is none."""
        if self.status is not None and self.status.state.is_final:
            return self.status.state is JobState.SUCCEEDED
        return self.application is not None and self.application.final_status is FinalStatus.SUCCEEDED

    def __str__(self) -> str:
        """Its id and what became of it, in a few words."""
        if self.status is not None and self.status.state.is_final:
            return f"{self.application_id} {self.status.state.value}"
        if self.application is not None:
            return f"{self.application_id} {self.application.state}"
        return f"{self.application_id}, of which the cluster knows nothing (any more) and which left no result"


def previous_application(
    cluster: Cluster, storage: Storage, layout: Layout, identity: Identity, *, remembered: str | None = None
) -> PreviousApplication | None:
    """The application that a training has started last: its owner, else the one ``remembered``.

    None when there is neither. Raises ClusterError, StorageError.
    """
    owner = TrainingOwners(storage, layout.job_dir(identity)).newest().owner.application_id
    application_id = owner or remembered
    if application_id is None:
        return None
    directory = layout.application_dir(identity, application_id)
    # In this order: an application that ends meanwhile has left its result by the time the cluster calls it ended.
    application = cluster.application(application_id)
    if application is not None:
        finder = ApplicationFinder(cluster, storage, layout)
        # More people, or a job, may write what a task remembers than may change the task, and a job its owner's file:
        # of which the tag is enough, since its directory may have gone.
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
            raise  # nothing else can tell whether it has succeeded
        log.warning("Going by what the cluster knows: %s", error)
        return None
