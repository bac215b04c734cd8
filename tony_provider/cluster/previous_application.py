"""The application that an earlier try of a training has started last, and what became of it."""

from __future__ import annotations

import logging

import attrs

from tony_provider.cluster import results
from tony_provider.cluster.application_ref import ApplicationFinder
from tony_provider.cluster.base import Application, Cluster
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.results import Delivered
from tony_provider.cluster.training_owners import TrainingOwners
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage.base import Storage

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
