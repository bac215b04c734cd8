"""Where a task keeps what its processes tell each other: Airflow's ``task_state_store``, or what stands in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import attrs

from tony_provider.airflow_versions.capabilities import TASK_STATES

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from pydantic import JsonValue


class TaskStore(Protocol):
    """A task's part of a store. All methods may raise anything."""

    is_airflows: ClassVar[bool]
    name: ClassVar[str]  # for people

    def get(self, key: str, *, forever: bool) -> JsonValue:
        """``forever``: whether it was kept so."""
        ...

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        """Returns whether it was taken."""
        ...

    def delete(self, key: str) -> None:
        """Of what was kept forever."""
        ...


@attrs.frozen
class _StateStore:
    """Airflow's own."""

    is_airflows: ClassVar[bool] = True
    name: ClassVar[str] = "Airflow's task_state_store"
    context: Context

    def get(self, key: str, *, forever: bool) -> JsonValue:
        return self.context["task_state_store"].get(key)

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks it

        self.context["task_state_store"].set(key, value, retention=NEVER_EXPIRE if forever else None)
        return True

    def delete(self, key: str) -> None:
        self.context["task_state_store"].delete(key)


@attrs.frozen
class _XComs:
    """The task's own XComs, which last as long as a try, deferrals included. They take nothing that outlives it."""

    is_airflows: ClassVar[bool] = False
    name: ClassVar[str] = "What stands in for Airflow's task_state_store"
    ti: RuntimeTaskInstanceProtocol

    def get(self, key: str, *, forever: bool) -> JsonValue:
        if forever:
            return None
        from airflow.providers.common.compat.sdk import XCom

        ti = self.ti
        index = -1 if ti.map_index is None else ti.map_index
        found: JsonValue = XCom.get_one(
            key=key, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=index
        )
        return found

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        if not forever:
            self.ti.xcom_push(key=key, value=value)
        return not forever

    def delete(self, key: str) -> None:
        pass


def store_of(context: Context) -> TaskStore:
    """Return the store of the task that runs."""
    return _StateStore(context) if TASK_STATES.is_here else _XComs(context["ti"])
