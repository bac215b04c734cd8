"""Threads of a triggerer that may ask Airflow, for a connection or the state of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tony_provider.airflow_versions.version import is_at_least

T = TypeVar("T")


async def in_thread(act: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
    """What ``act`` returns, called in a thread of ``pool``; None: of the event loop's own."""
    if is_at_least(3, 2):
        return await asyncio.get_running_loop().run_in_executor(pool, act)
    # A question is then asked in the triggerer's event loop, and asgiref's threads alone find the way there: from any
    # other one it goes out, and its answer is taken for that to another question, which ends the triggerer.
    from asgiref.sync import sync_to_async

    return await sync_to_async(act, thread_sensitive=False, executor=pool)()
