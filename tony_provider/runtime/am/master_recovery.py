"""What an application master finds on the store when it begins, above all what former ones of its application left."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Callable, Optional, TypeVar

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.am.owner import FencedError, Ownership
from tony_provider.runtime.am.session.recovery.history import History
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.history.segment_files import listed
from tony_provider.runtime.history.segments import segment_order
from tony_provider.runtime.history.stored_events import StoredSegment, event_segments, read_events
from tony_provider.runtime.most_bytes import STATUS
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.retrying import retry
from tony_provider.runtime.storage import (
    Storage,
    StorageNotFound,
    StorageTooLarge,
    StorageUnreachable,
    read_whole,
    uris,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT = 600.0  # seconds for a store that cannot be reached


@attrs.frozen
class PreviousMasters:
    """What the former application masters of this application have left on the store."""

    events: list[StoredSegment]  # of their event log
    history: History
    status: Optional[JobStatus]  # as they knew it last
    series: int  # bytes of the series that they have kept
    result: Optional[JobStatus]  # they brought the job to its end, and only the leave from the cluster is missing


@attrs.frozen
class RecoveredState:
    """What an application master finds at its start: what is left to it, and whether it may start anything."""

    legacy: Optional[PreviousMasters]  # None: this is the first application master
    fenced: str  # why nothing may be started; empty: it may


def look(ownership: Ownership) -> RecoveredState:
    """Read what a starting application master has to know. Blocks; raises SupersededError, StorageError."""
    fenced = ""
    try:
        ownership.check()
    except FencedError as error:
        fenced = str(error)
    first = ownership.am_attempt == 1
    return RecoveredState(
        None if first else read_legacy(ownership.storage, ownership.description.application_dir), fenced
    )


async def from_store(work: Callable[[], T]) -> T:
    """Do blocking work, again and again until the store can be reached; returns what it gives.

    Raises StorageError, and what ``work`` raises.
    """
    return await retry(partial(asyncio.to_thread, work), _TIMEOUT, StorageUnreachable, _troubled)


def _troubled(error: StorageUnreachable) -> None:
    log.warning("trying again: %s", error)


def read_legacy(storage: Storage, directory: str) -> PreviousMasters:
    """What former application masters have left in the application's directory. Raises StorageError.

    A result that was written in the face of death, though the job goes on, is removed.
    """
    result = _status(storage, uris.join(directory, contract.RESULT_FILE))
    status = _status(storage, uris.join(directory, contract.STATUS_FILE))
    if result and not (status and status.state is result.state):
        log.info("the result of a former application master was premature")
        storage.remove(uris.join(directory, contract.RESULT_FILE))
        result = None
    history = _history(storage, directory)
    return PreviousMasters(event_segments(storage, directory), history, status, _series(storage, directory), result)


def _series(storage: Storage, directory: str) -> int:
    files = listed(storage, uris.join(directory, contract.HISTORY_DIR))
    return sum(file.size for file in files if segment_order(file.name))


def _history(storage: Storage, directory: str) -> History:
    missing: list[str] = []
    try:
        return History.read(read_events(storage, directory, missing))
    except CodecError as error:
        # The executors know their own part of it.
        log.warning("the counters of the former application master cannot be read: %s", error)
        return History()
    finally:
        for line in missing:
            log.warning("of the former application masters' %s", line)


def _status(storage: Storage, uri: str) -> Optional[JobStatus]:
    try:
        return load_json(read_whole(storage, uri, STATUS), JobStatus)
    except StorageNotFound:
        return None
    except (CodecError, StorageTooLarge) as error:
        log.warning("%s: %s", uri, error)
        return None
