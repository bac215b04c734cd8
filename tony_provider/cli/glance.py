"""One look at a job, by somebody who has not looked before: how it is, and what keeps that from being known."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator

import attrs

from tony_provider.cli.named import application_of
from tony_provider.cluster.application_ref import ApplicationRef
from tony_provider.cluster.base import Application, ApplicationState
from tony_provider.cluster.checkpoint_chains import CheckpointChains, KeptCheckpoint, kept_checkpoints
from tony_provider.cluster.errors import ClusterError, RecordUnreadable
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.clock import moment
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.protocol.timing import STATUS_STALE
from tony_provider.runtime.quantities import span
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.contact import Contact
from tony_provider.watching.observation import Observation, ask_the_master, observe_status
from tony_provider.watching.silence import Silence


@attrs.frozen
class Glance:
    """What one look at a job has shown: its application, its status, and what keeps them from being current."""

    application_id: str
    application: Application | None
    status: JobStatus | None
    directory: str | None  # None: nothing of it is in the staging directory, or that cannot be seen
    troubles: list[str]
    checkpoints: list[KeptCheckpoint] = attrs.field(factory=list)  # of its chain, the newest first
    error: Exception | None = None  # why nothing is known of the job


def glance(hook: TonyHook, args: Namespace) -> Glance:
    """Look once at the application that the command line names.

    Raises NotFound, ClusterError, and StorageError where the cluster does not tell of the application either.
    """
    found, seen = _look(hook, args)
    if seen.unreadable is not None:
        raise seen.unreadable
    old = list(_old(seen))
    if (old or seen.outage) and seen.application and seen.application.state is ApplicationState.RUNNING:
        seen = attrs.evolve(seen, master=ask_the_master(hook, found.identity, found.application_id))
    silence = Silence(Contact(), lambda _: None)
    silence.look(seen)
    checkpoints, unknown = _checkpoints(hook, found)
    return Glance(
        application_id=found.application_id,
        application=seen.application,
        status=seen.newest,
        directory=hook.application_dir(found.identity, found.application_id) if found.identity is not None else None,
        troubles=[*silence.lines, *old, *_master_says(seen), *unknown],
        checkpoints=checkpoints,
        error=seen.outage if seen.newest is None else None,
    )


def _look(hook: TonyHook, args: Namespace) -> tuple[ApplicationRef, Observation]:
    """By the cluster's word alone where the store does not answer."""
    try:
        found = application_of(hook, args)
    except StorageError as error:
        application = hook.application(args.application_id) if args.application_id else None
        if application is None:
            raise
        return ApplicationRef(application.id, application, None), Observation(application, outages=(error,))
    return found, observe_status(hook, found.identity, found.application_id, found.application)


def _checkpoints(hook: TonyHook, found: ApplicationRef) -> tuple[list[KeptCheckpoint], list[str]]:
    """The checkpoints of the chain that the application owns, and why they are not known."""
    if found.identity is None:
        return [], []
    try:
        chain = CheckpointChains(hook.storage(), hook.layout, found.identity).owned_by(found.application_id)
        return kept_checkpoints(hook.storage(), chain.uri) if chain else [], []
    except (StorageError, RecordUnreadable) as error:
        return [], [f"The checkpoints are not known: {error}"]


def _old(seen: Observation) -> Iterator[str]:
    """By two clocks, which may differ: that is said, and the master is asked."""
    status, application = seen.status, seen.application
    if status is None or application is None or application.state is not ApplicationState.RUNNING:
        return
    age = time.time() - status.updated_ms / 1000
    if abs(age) > STATUS_STALE:
        when = f"{span(age)} ago" if age > 0 else f"{span(-age)} ahead"
        yield f"The job's status on the store is of {moment(status.updated_ms)}, {when} by this machine's clock"


def _master_says(seen: Observation) -> Iterator[str]:
    if isinstance(seen.master, JobStatus):
        yield "The application master was asked itself, and says what is shown here"
    elif isinstance(seen.master, ClusterError):
        yield f"The application master does not answer either: {seen.master}"
