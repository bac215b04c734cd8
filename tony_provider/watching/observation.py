"""What is to be seen of a job at one moment: the cluster's word, the job's own, and what could not be read."""

from __future__ import annotations

import attrs

from tony_provider.cluster.base import Application
from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError


@attrs.frozen
class Observation:
    application: Application | None = None  # None: the cluster does not know it
    status: JobStatus | None = None  # None: the job has not written one, or it cannot be read
    unreadable: RecordUnreadable | None = None  # what the job has written and cannot be read
    outage: ClusterError | StorageError | None = None  # the cluster or its store does not answer: the rest is of before
    whole: bool = True  # False: the status may be older than what the cluster says


def observe(hook: TonyHook, identity: Identity | None, application_id: str) -> Observation:
    """Blocks for as long as the cluster takes to answer. Raises nothing of the cluster's or the store's.

    ``identity``: None when nothing of the application is in the staging directory.
    """
    try:
        application = hook.application(application_id)
    except (ClusterError, StorageError) as error:
        return Observation(outage=error)
    return observe_status(hook, identity, application_id, application)


def observe_status(
    hook: TonyHook, identity: Identity | None, application_id: str, application: Application | None
) -> Observation:
    """The same where it is known what the cluster says."""
    if identity is None:
        return Observation(application)
    ended = application is None or application.is_final
    try:
        return Observation(application, hook.job_status(identity, application_id, may_have_ended=ended))
    except RecordUnreadable as error:
        return Observation(application, unreadable=error)
    except (ClusterError, StorageError) as error:
        return Observation(outage=error)
