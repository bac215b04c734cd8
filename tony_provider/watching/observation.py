"""What was seen of a job at one moment: the cluster's word, the job's own, and what could not be read."""

from __future__ import annotations

import attrs

from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.contact import Contact, Peer

Outage = ClusterError | StorageError
MASTER_SECONDS = 5.0  # that a master may take to answer somebody who watches


@attrs.frozen
class Observation:
    """All that one look at an application has found out, and who did not answer."""

    application: Application | None = None  # None: the cluster does not know it
    status: JobStatus | None = None  # None: the job has not written one, or it cannot be read
    unreadable: RecordUnreadable | None = None  # what the job has written and cannot be read
    outages: tuple[Outage, ...] = ()  # the cluster or its store does not answer: what they tell is of before
    whole: bool = True  # False: the status may be older than what the cluster says
    master: JobStatus | ClusterError | None = None  # what it said when it was asked itself, or why it did not

    @property
    def outage(self) -> Outage | None:
        return next(iter(self.outages), None)

    @property
    def runs(self) -> bool:
        """Whether the cluster says that the application's master runs."""
        return self.application is not None and self.application.state is ApplicationState.RUNNING

    @property
    def newest(self) -> JobStatus | None:
        """The newest status of the job: what its master says itself, else what it has written."""
        return self.master if isinstance(self.master, JobStatus) else self.status


def observe(
    hook: TonyHook,
    identity: Identity | None,
    application_id: str,
    *,
    contact: Contact | None = None,
    ask_master: bool = False,
) -> Observation:
    """Ask the cluster about the application, then read the job's status from the store.

    Blocks for as long as the cluster takes to answer. Raises nothing of the cluster's or the store's.

    ``identity``: None when nothing of the application is in the staging directory. ``contact`` knows meanwhile who does
    not answer. ``ask_master``: the status on the store does not tell how the job is.
    """
    contact = contact or Contact()
    try:
        with contact.asking(Peer.CLUSTER):
            application = hook.application(application_id)
    except (ClusterError, StorageError) as error:
        return Observation(outages=(error,))
    return observe_status(hook, identity, application_id, application, contact=contact, ask_master=ask_master)


def observe_status(
    hook: TonyHook,
    identity: Identity | None,
    application_id: str,
    application: Application | None,
    *,
    contact: Contact | None = None,
    ask_master: bool = False,
) -> Observation:
    """Read the job's status, where it is known already what the cluster says of the application.

    Blocks and raises as ``observe`` does; arguments are as there.
    """
    if identity is None:
        return Observation(application)
    contact = contact or Contact()
    runs = application is not None and application.state is ApplicationState.RUNNING
    master = ask_the_master(hook, identity, application_id) if ask_master and runs else None
    ended = application is None or application.is_final
    try:
        with contact.asking(Peer.STORE):
            status = hook.job_status(identity, application_id, may_have_ended=ended)
    except RecordUnreadable as error:
        return Observation(application, unreadable=error, master=master)
    except (ClusterError, StorageError) as error:
        return Observation(application, outages=(error,), master=master)
    return Observation(application, status, master=master)


def ask_the_master(hook: TonyHook, identity: Identity | None, application_id: str) -> JobStatus | ClusterError:
    """The status that the application master itself gives when asked, or the error that says why it gives none.

    Blocks for MASTER_SECONDS at most.
    """
    try:
        return hook.master_status(identity, application_id, seconds=MASTER_SECONDS)
    except ClusterError as error:
        return error
