"""The table of Airflow's database with the state of tasks, for the portal and the command that rebuilds its list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.orm import synonym

from tony_provider.airflow_versions.capabilities import PORTAL

if TYPE_CHECKING or PORTAL.is_here:
    from airflow.models.task_state_store import TaskStateStoreModel as Stored
else:
    PORTAL.refuse("The portal")

if not hasattr(Stored, "map_index"):  # Airflow 3.4 calls the column region_index, also where it keeps the former name
    Stored.map_index = synonym("region_index")

__all__ = ["Stored"]
