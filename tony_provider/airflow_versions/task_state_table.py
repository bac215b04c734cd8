"""The table of Airflow's database with the state of tasks, for the portal and the command that rebuilds its list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tony_provider.airflow_versions.capabilities import PORTAL

if TYPE_CHECKING or PORTAL.is_here:
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
else:
    PORTAL.refuse("The portal")

__all__ = ["Stored"]
