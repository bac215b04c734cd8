"""Defaults of a tony connection. Imported by every `airflow` command, so it imports nothing."""

from __future__ import annotations

NAMESPACE = "airflow"
CALL_SECONDS = 60.0  # for one call to the ResourceManagers, with every retry and failover
