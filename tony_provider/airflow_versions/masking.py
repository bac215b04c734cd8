"""The logger of Airflow's masker of secrets, as tasks and triggerers have it."""

from __future__ import annotations

from tony_provider.airflow_versions.version import is_at_least

MASKER = (
    "airflow.sdk._shared.secrets_masker.secrets_masker"
    if is_at_least(3, 1)
    else "airflow.sdk.execution_time.secrets_masker"
)
