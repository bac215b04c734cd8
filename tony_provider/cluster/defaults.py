"""Defaults of a tony connection. Imported by every `airflow` command, so it imports nothing."""

from __future__ import annotations

NAMESPACE = "airflow"
LOG_SIZE = "64MiB"  # as runtime.executor.output.SIZE
CALL_SECONDS = 60.0  # for one call to the ResourceManagers, with every retry and failover
