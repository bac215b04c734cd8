"""Fetch the present state of a job once, with the reasons why the state may be outdated."""

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
    """The fetched state of a job: its application, its status, and the reasons why they may be outdated."""

    application_id: str
    application: Application | None
    status: JobStatus | None
    directory: str | None  # None if the staging directory has no files of it, or cannot be read
    troubles: list[str]
    checkpoints: list[KeptCheckpoint] = attrs.field(factory=list)  # of its chain, the newest first
    error: Exception | None = None  # the reason if the state is unknown


def glance(hook: TonyHook, args: Namespace) -> Glance:
    """Fetch the state of the application that the command line names.

    Raises NotFound, ClusterError, and StorageError if the cluster does not know the application either.
    """
    found, seen = _observe(hook, args)
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
        troubles=[*silence.lines, *old, *_answer_of_master(seen), *unknown],
        checkpoints=checkpoints,
        error=seen.outage if seen.newest is None else None,
    )


def _observe(hook: TonyHook, args: Namespace) -> tuple[ApplicationRef, Observation]:
    """Return the application and its state, from the cluster alone if the store does not answer."""
    try:
        found = application_of(hook, args)
    except StorageError as error:
        application = hook.application(args.application_id) if args.application_id else None
        if application is None:
            raise
        return ApplicationRef(application.id, application, None), Observation(application, outages=(error,))
    return found, observe_status(hook, found.identity, found.application_id, found.application)


def _checkpoints(hook: TonyHook, found: ApplicationRef) -> tuple[list[KeptCheckpoint], list[str]]:
    """Return the checkpoints of the application's chain, and the reason if they are unknown."""
    if found.identity is None:
        return [], []
    try:
        chains = CheckpointChains(hook.storage(), hook.layout, found.identity)
        chain = chains.used_by(found.application_id)
        return kept_checkpoints(hook.storage(), chain.uri) if chain else [], []
    except (StorageError, RecordUnreadable) as error:
        return [], [f"The checkpoints are unknown: {error}"]


def _old(seen: Observation) -> Iterator[str]:
    """Yield a line if the status is old by the clock of this machine, which may differ from the master's clock."""
    status, application = seen.status, seen.application
    if status is None or application is None or application.state is not ApplicationState.RUNNING:
        return
    age = time.time() - status.updated_ms / 1000
    if abs(age) > STATUS_STALE:
        when = f"{span(age)} ago" if age > 0 else f"{span(-age)} ahead"
        yield f"The job's status on the store is of {moment(status.updated_ms)}, {when} by this machine's clock"


def _answer_of_master(seen: Observation) -> Iterator[str]:
    if isinstance(seen.master, JobStatus):
        yield "The status shown here comes from the application master itself"
    elif isinstance(seen.master, ClusterError):
        yield f"The application master does not answer either: {seen.master}"
