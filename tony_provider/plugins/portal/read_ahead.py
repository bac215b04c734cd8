"""Reading the summaries as the API server starts, so that nobody's first list waits for thousands to be parsed.

Each process of the server has a memory of its own, and fills it by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from tony_provider.plugins.portal.row_memory import MEMORY
from tony_provider.runtime.text import first_line

log = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds; for a database that does not answer while the server stops


@asynccontextmanager
async def reading_ahead(_: FastAPI) -> AsyncIterator[None]:
    """The lifespan of the portal's app, which Airflow enters together with its own."""
    over = threading.Event()
    thread = threading.Thread(target=_read, args=[over], name="tony-portal-read-ahead", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        await run_in_threadpool(thread.join, _PATIENCE)


def _read(over: threading.Event) -> None:
    try:
        for _ in MEMORY.read_ahead():
            if over.is_set():
                return
    except SQLAlchemyError as error:
        log.warning("The portal could not read the jobs ahead; the first list reads them: %s", first_line(str(error)))
