"""The exceptions with which Airflow defers a task, and goes on with one whose trigger has failed or gone silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tony_provider.airflow_versions.version import is_at_least

if TYPE_CHECKING or is_at_least(3, 2):
    from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout, TaskDeferred
else:
    from airflow.exceptions import TaskDeferralError, TaskDeferralTimeout, TaskDeferred

__all__ = ["TaskDeferralError", "TaskDeferralTimeout", "TaskDeferred"]
