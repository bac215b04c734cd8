"""Threads of a triggerer that may ask Airflow, for a connection or the state of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tony_provider.airflow_versions.version import is_at_least

T = TypeVar("T")

_asked: set[asyncio.Future[Any]] = set()  # those that are under way, before Airflow 3.2


async def in_thread(act: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
    """What ``act`` returns, called in a thread of ``pool``; None: of the event loop's own."""
    if is_at_least(3, 2):
        return await asyncio.get_running_loop().run_in_executor(pool, act)
    # A question is then asked in the triggerer's event loop, and asgiref's threads alone find the way there: from any
    # other one it goes out, and its answer is taken for that to another question, which ends the triggerer.
    from asgiref.sync import sync_to_async

    # Nor may a question be given up while its answer is on the way: whoever is cancelled leaves it to its end.
    asked = asyncio.ensure_future(sync_to_async(act, thread_sensitive=False, executor=pool)())
    _asked.add(asked)
    asked.add_done_callback(_done)
    return await asyncio.shield(asked)


def _done(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    _ = asked.cancelled() or asked.exception()  # asyncio complains of exceptions that nobody looked at
