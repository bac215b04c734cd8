"""Airflow's own database as a source of connections, for processes that are neither task nor server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@contextmanager
def connections_of_database() -> Iterator[None]:
    """Context manager in which connections are looked for in Airflow's database too, as its own commands do it.

    Airflow looks there for a process only where this variable says "server", which its own commands set; within a task
    it changes nothing, since tasks ask the api-server. Source: airflow/cli/commands/connection_command.py and
    ensure_secrets_backend_loaded in airflow/sdk/execution_time/supervisor.py of 3.3.2.
    """
    before = os.environ.get(_CONTEXT)
    os.environ[_CONTEXT] = "server"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CONTEXT]
        else:
            os.environ[_CONTEXT] = before
