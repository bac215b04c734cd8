"""Ending applications from a triggerer, perhaps hundreds at a time: a user may clear or mark a whole run.

Airflow gives each trigger some seconds for it and cancels what has not been done by then. So every application is asked
to stop first, which takes a moment and lets it end by itself; only then is it waited for, which may take as long as its
grace. Both go on in threads, whatever becomes of the trigger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tony_provider.cluster.base import CONTROL_SECONDS
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.killing import Kill, end_application, stop_application

log = logging.getLogger(__name__)

_stopping = ThreadPoolExecutor(16, thread_name_prefix="tony-stop")
_ending = ThreadPoolExecutor(16, thread_name_prefix="tony-end")


async def end_from_triggerer(
    tony_conn_id: str, proxy_user: str | None, identity: Identity, application_id: str, kill: Kill
) -> None:
    """Stop it, and then see that it ends. Being cancelled stops the waiting, and nothing else."""

    def stop() -> None:
        with TonyHook(tony_conn_id, proxy_user) as hook:
            stop_application(hook, application_id, kill, seconds=CONTROL_SECONDS)

    def end() -> None:
        with TonyHook(tony_conn_id, proxy_user) as hook:
            end_application(hook, identity, application_id, kill)

    await _in(_stopping, stop, application_id)
    await _in(_ending, end, application_id)


async def _in(pool: ThreadPoolExecutor, act: Callable[[], None], application_id: str) -> None:
    await asyncio.shield(asyncio.wrap_future(pool.submit(_told, act, application_id)))


def _told(act: Callable[[], None], application_id: str) -> None:
    try:
        act()
    except (ClusterError, StorageError) as error:
        log.error("%s could not be ended: %s", application_id, error)  # noqa: TRY400 - the message says it
