"""What is left of an application that has ended is no reason to call anything failed."""

from __future__ import annotations

from collections.abc import Callable

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.errors import StorageError


def clear_up(hook: TonyHook, identity: Identity, application_id: str, warn: Callable[..., object]) -> None:
    """See ``TonyHook.cleanup``. ``warn`` is told what could not be removed, as by somebody who may only read."""
    try:
        hook.cleanup(identity, application_id)
    except (ClusterError, StorageError) as error:
        warn("Not everything of %s could be removed: %s", application_id, error)
