"""Who reads, and what Airflow lets them read: its own authentication, and its own permissions for each DAG.

A FastAPI app of a plugin has no authentication by itself, so that each route asks for a ``ReaderDep``.
"""

from __future__ import annotations

from typing import Annotated

import attrs
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends


@attrs.frozen
class PortalReader:
    """Somebody who has logged in. All methods ask Airflow's auth manager, and may block."""

    user: BaseUser

    def readable_dags(self) -> frozenset[str]:
        """The ids of the DAGs whose jobs they may read, by what Airflow's own lists of task instances ask for."""
        manager = get_auth_manager()
        if not manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE, user=self.user):
            return frozenset()
        return frozenset(manager.get_authorized_dag_ids(user=self.user, method="GET"))

    def may_read(self, dag_id: str) -> bool:
        """Whether they may read the DAG and its task instances. False also where there is no such DAG."""
        return self._may(dag_id, None) and self._may(dag_id, DagAccessEntity.TASK_INSTANCE)

    def may_read_logs(self, dag_id: str) -> bool:
        return self.may_read(dag_id) and self._may(dag_id, DagAccessEntity.TASK_LOGS)

    def _may(self, dag_id: str, entity: DagAccessEntity | None) -> bool:
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        manager = get_auth_manager()
        return manager.is_authorized_dag(method="GET", access_entity=entity, details=details, user=self.user)


def _reader(user: GetUserDep) -> PortalReader:
    return PortalReader(user)


ReaderDep = Annotated[PortalReader, Depends(_reader)]
