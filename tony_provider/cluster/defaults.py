"""Defaults of a tony connection. Every `airflow` command imports this module, so it must stay free of imports."""

from __future__ import annotations

NAMESPACE = "airflow"
CALL_SECONDS = 60.0  # limit for one call to the ResourceManagers, including all retries and failovers
