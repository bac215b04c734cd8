"""The end of what a task has printed, kept on the store when its container ends.

The values of the user's secrets are masked: whoever reads it later may not know them, as Airflow's pages do not. Each
byte of the rest stays where it was, since readers know how much of a log they have.
"""

from __future__ import annotations

import asyncio
import logging

from tony_provider.runtime import contract
from tony_provider.runtime.deadline import within
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.output import KEPT_LIMIT
from tony_provider.runtime.storage import StorageError, uris

log = logging.getLogger(__name__)

_TIMEOUT = 20.0  # seconds for the log to reach the store; the application master waits timing.KEEP_LOGS


async def keep_log(context: ExecutorContext) -> None:
    """Copy the end of the log to the store.

    One that cannot be kept is no reason to fail: YARN has the container's own files.
    """
    container = context.container
    name = contract.log_name(container.identity.task, container.identity.attempt)
    try:
        target = uris.join(container.description.application_dir, contract.LOGS_DIR, name)
        await within(asyncio.to_thread(_upload, context, target), _TIMEOUT)
    except asyncio.TimeoutError:
        log.warning("the log could not be uploaded within %g s", _TIMEOUT)
    except (StorageError, OSError) as error:
        log.warning("the log could not be uploaded: %s", error)


def _upload(context: ExecutorContext, target: str) -> None:
    data = context.output.both.last(KEPT_LIMIT, context.container.user_secrets.values())
    if data:
        context.storage.write(target, data, overwrite=True)
