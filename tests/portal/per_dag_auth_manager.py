"""An auth manager that tells DAGs apart, which Airflow's simple one does not: for tests."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

PORTAL_DAGS = {
    *("portal_acted", "portal_clicks", "portal_corrected", "portal_sweep", "portal_odd", "portal_long", "portal_large"),
    "portal_refused",
}
# What each user may read: DAGs, and kinds of access that they lack.
READS: dict[str, set[str]] = {
    "alice": {"clicks", "digits"},
    "bob": {"digits"},
    "carol": set(),
    "dave": {"clicks"},
    "erin": {"clicks"},
    "frank": {"seeded_clicks", "seeded_sweep", "seeded_odd", "seeded_marked"},
    "ivan": {"digits_daily", "parted"},
    "judy": {"digits"},
    "rita": {"ordered"},
    "saul": {"ordered"},
    "peggy": {"ordered", "portal_acted", "portal_corrected", "portal_refused"},
    "kate": {"clicks"},
    "grace": PORTAL_DAGS | {f"many_{number:02}" for number in range(20)},
    "heidi": {"portal_sweep"},
}
LACKS = {
    "dave": {DagAccessEntity.TASK_LOGS},
    "judy": {DagAccessEntity.TASK_LOGS},
    "kate": {DagAccessEntity.XCOM},
    "erin": {DagAccessEntity.TASK_INSTANCE},
}


READ_ONLY = {"peggy"}
CONNECTIONS = {user: {"tony_default"} for user in ("judy", "erin", "rita", "peggy", "grace")}


class PerDagAuthManager(SimpleAuthManager):
    """Airflow's simple auth manager, but users have access only to the DAGs in ``READS``.

    They may also edit these DAGs, except for the users in ``READ_ONLY``. The same applies to ``CONNECTIONS``.
    """

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if access_entity in LACKS.get(user.username, ()) or (method != "GET" and user.username in READ_ONLY):
            return False
        return details is None or details.id is None or details.id in READS[user.username]

    def is_authorized_connection(self, *, method: Any, user: Any, details: Any = None) -> bool:
        if method != "GET" and user.username in READ_ONLY:
            return False
        return details is not None and details.conn_id in CONNECTIONS.get(user.username, ())
