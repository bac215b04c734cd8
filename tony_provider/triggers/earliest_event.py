"""When a deferred task may be woken up at the earliest.

The process that has deferred a task ends a little later, and its supervisor looks for that only now and then. A
scheduler that hears of that end when the task already runs again takes it for the end of the new process, and fails the
task (https://github.com/apache/airflow/issues/72716). So triggers keep what they have to tell for some seconds where
the job ends, or the condition is met, as soon as the task is deferred.
"""

from __future__ import annotations

import asyncio
import time

from airflow.providers.common.compat.sdk import conf

_SUPERVISOR_SECONDS = 5.0  # Airflow's default for [workers] min_heartbeat_interval: between two looks of a supervisor
_SCHEDULER_SECONDS = 5.0  # that a scheduler may take to hear of the end, where it has much to do


def earliest_event() -> float:
    """The moment, in epoch seconds, from which on a task that is deferred now may be woken up."""
    looks: float = conf.getfloat("workers", "min_heartbeat_interval", fallback=_SUPERVISOR_SECONDS)
    return time.time() + looks + _SCHEDULER_SECONDS


async def until_earliest(moment: float | None) -> None:
    """Wait for the moment that ``earliest_event`` gave; None: nothing is waited for."""
    if moment is not None:
        await asyncio.sleep(max(0.0, moment - time.time()))
