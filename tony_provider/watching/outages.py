"""Outages of a cluster or store: how long a task goes on in spite of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable
from tony_provider.watching.contact import side_of
from tony_provider.watching.troubles import Troubles

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

T = TypeVar("T")

OUTAGE_SECONDS = 600.0  # the cluster may be out of reach this long before a try of the task gives up on it
_PAUSE = 5.0  # seconds


def call_through_outage(call: Callable[[], T], log: Logger) -> T:
    """Call until the cluster and the store answer, for as long as an outage may last; returns what ``call`` returns.

    Blocks. Raises the call's ClusterError or StorageError in the end.
    """
    deadline = time.monotonic() + OUTAGE_SECONDS
    troubles = Troubles(log.warning)
    while True:
        try:
            found = call()
        except (ClusterError, StorageError) as error:
            passing = not error.permanent if isinstance(error, ClusterError) else isinstance(error, StorageUnreachable)
            if not passing or time.monotonic() >= deadline:
                raise
            troubles.goes_on(call, f"{side_of(error)} does not answer", str(error))
            time.sleep(_PAUSE)
        else:
            troubles.is_over(call, "There is an answer")
            return found


def outage_start(error: ClusterError | StorageError, since: float | None, now: float) -> float:
    """When the outage began that ``error`` is one more sign of: ``since`` if it went on already, else ``now``.

    Times are seconds of one clock. Raises the error when it is permanent, or the outage has lasted for OUTAGE_SECONDS.
    """
    since = now if since is None else since
    permanent = isinstance(error, ClusterError) and error.permanent
    if permanent or now - since > OUTAGE_SECONDS:
        raise error
    return since
