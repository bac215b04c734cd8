"""The names in the context that Airflow gives a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tony_provider.airflow_versions.version import is_at_least

if TYPE_CHECKING or is_at_least(3, 1):
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS
else:
    from airflow.utils.context import KNOWN_CONTEXT_KEYS

__all__ = ["KNOWN_CONTEXT_KEYS"]
