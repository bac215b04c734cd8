"""Airflow's own API server and pages, in a thread of this process, with seeded jobs behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI

from tests.hadoop.ports import free_ports
from tests.portal import seeded
from tests.waiting import until
from tony_provider.hooks.job import TonyJob
from tony_provider.portal import api, job_views
from tony_provider.portal.stored_jobs import Row
from tony_provider.runtime.storage.base import FileStatus

HOST = "127.0.0.1"
LOGS = [FileStatus(f"/logs/worker-{rank}.attempt-1.log", 2000, 0, False, "", None) for rank in range(2)]


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address at which the app is served."""
    port = free_ports(1)[0]
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, name="portal-pages")
    thread.start()
    try:
        until(lambda: server.started, lambda: "the API server's start")
        yield f"http://{HOST}:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def token(user: str) -> str:
    """The cookie of somebody who has logged in."""
    return get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role="admin"))


def seed_the_store(patch: pytest.MonkeyPatch) -> None:
    """From now on jobs have the histories of ``seeded``, in place of a store; SWEEP's are out of reach."""

    store = SimpleNamespace(stale_models=lambda **_: [])

    async def read(row: Row, what: Callable[[Any], object], _: object) -> object:
        if row["dag_id"] == seeded.SWEEP:
            raise job_views.JobUnavailable("hdfs://away.example.com:8020 does not answer: connection refused")
        return what(store)

    patch.setattr(job_views, "_read", read)
    patch.setattr(job_views, "job_of_row", lambda hook, row: TonyJob(hook, row["application_id"], None))
    patch.setattr(TonyJob, "directory", "")
    patch.setattr(TonyJob, "specification", lambda job, _: seeded.history(job.application_id).specification)
    patch.setattr(TonyJob, "history", lambda job: seeded.history(job.application_id))
    patch.setattr(TonyJob, "has_event_files", lambda job: bool(seeded.history(job.application_id).samples))
    patch.setattr(api, "live_state", lambda job: seeded.live(job.application_id))
    patch.setattr(TonyJob, "stored_logs", lambda job: LOGS)
    patch.setattr(TonyJob, "logs", lambda job, task, most, **_: seeded.printed(task)[-most:])
