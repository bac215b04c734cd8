"""Whether a training's task in Airflow may yet start an application: asked of Airflow itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import attrs
from airflow.providers.common.compat.sdk import TaskInstanceState

from tony_provider.airflow_versions.threads import in_thread
from tony_provider.runtime.deadline import within

_OVER = frozenset(
    state.value
    for state in (
        TaskInstanceState.SUCCESS,
        TaskInstanceState.FAILED,
        TaskInstanceState.SKIPPED,
        TaskInstanceState.UPSTREAM_FAILED,
        TaskInstanceState.REMOVED,
    )
)

log = logging.getLogger(__name__)


@attrs.frozen
class TrainTaskStates:
    """What Airflow says of a training's task: whether it may yet start an application."""

    is_over: bool | None = None  # True: the task starts nothing any more; None: nobody knows
    state: str = ""  # of the task, for people


@attrs.frozen
class TrainTask:
    """One training task of one run in Airflow, whose state can be asked for."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None  # None: not known, since the author names the training otherwise

    def states(self) -> TrainTaskStates:
        """Ask Airflow for the task's state. Blocks. Not known when Airflow does not tell."""
        # Here: the modules of tasks that run are not for processes that only read DAGs.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            told = RuntimeTaskInstance.get_task_states(
                dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id]
            )
        except Exception as error:  # noqa: BLE001 - an answer that is missing must not end a watch
            log.warning("Airflow does not tell the state of %s: %s", self.task_id, error)
            return TrainTaskStates()
        return self.read(told.get(self.run_id) or {})

    async def ask(self, seconds: float) -> TrainTaskStates:
        """Ask Airflow from an event loop; not known when Airflow takes longer than ``seconds``."""
        try:
            return await within(in_thread(self.states), seconds)
        except TimeoutError:
            return TrainTaskStates()

    def read(self, states: Mapping[str, Any]) -> TrainTaskStates:
        """What Airflow's answer means for this task.

        ``states``: by task, mapped ones by ``<task>_<index>``, and an index of its own for one not expanded yet.
        """
        mine = [states[name] for name in self._names() if name in states][:1] or list(states.values())
        if not mine:
            return TrainTaskStates()
        names = [str(getattr(state, "value", state) or "none") for state in mine]
        going_on = [name for name in names if name not in _OVER]
        return TrainTaskStates(not going_on, (going_on or names)[0])

    def _names(self) -> list[str]:
        mapped = [f"{self.task_id}_{self.map_index}"] if self.map_index is not None and self.map_index >= 0 else []
        return [*mapped, self.task_id]
