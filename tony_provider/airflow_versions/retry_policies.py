"""Airflow's retry policies: what a policy of ours derives from, and answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tony_provider.airflow_versions.capabilities import RETRY_POLICIES

if TYPE_CHECKING or RETRY_POLICIES.is_here:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:

    class RetryPolicy:
        """In place of Airflow's: whoever makes one is told so, when the DAG file is parsed."""

        def __new__(cls, *_: Any, **__: Any) -> NoReturn:
            """Raises AirflowTooOld."""
            RETRY_POLICIES.refuse(f"{cls.__name__}, a retry policy,")

    RetryDecision = None  # no policy is ever asked for one

__all__ = ["RetryDecision", "RetryPolicy"]
