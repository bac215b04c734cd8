"""Defaults of a tony connection. Every `airflow` command imports this module, so it imports nothing."""

from __future__ import annotations

NAMESPACE = "airflow"
CALL_SECONDS = 60.0  # for one call to the ResourceManagers, including all retries and failovers
