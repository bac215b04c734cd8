"""A sensor's arguments, and the job that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskRun
from tony_provider.runtime.hadoop.ids import is_application_id
from tony_provider.runtime.spec.problems import shown
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.sensors.base import WHICH_JOB
from tony_provider.watching.job_search import JobTarget
from tony_provider.watching.task_states import TrainTask

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


@attrs.frozen
class SensorArguments:
    """The arguments by which a sensor names its job, rendered; None where a template gave nothing."""

    application_id: str | None
    application_tag: str | None
    train_task_id: str | None
    map_index: int | str | None
    checkpoint_key: str | None

    def resolve(self, hook: TonyHook, context: Context, tasks: Sequence[str]) -> tuple[JobTarget, TrainTask | None]:
        """The job that the arguments name, and the training task in Airflow where it is one of this run.

        ``tasks``: ids of the DAG's tasks. Raises TonySpecError, ConnectionProblem.
        """
        given = [name for name in WHICH_JOB if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"{name}={shown(getattr(self, name))}" for name in given) or "none of them"
            raise TonySpecError(f"{found} is given: a sensor needs exactly one of {', '.join(WHICH_JOB)}")
        if self.train_task_id:
            task = self._train_task(context, tasks, self.train_task_id)
            identity = hook.identity(
                dag_id=task.dag_id,
                run_id=task.run_id,
                task_id=task.task_id,
                map_index=-1 if task.map_index is None else task.map_index,
                checkpoint_key=self.checkpoint_key,
            )
            return JobTarget(identity=identity), task
        if self.checkpoint_key or self.map_index is not None:
            raise TonySpecError(f"map_index and checkpoint_key go with train_task_id, and {given[0]} is given")
        if self.application_id:
            _check(self.application_id)
        return JobTarget(self.application_id, self.application_tag), None

    def _train_task(self, context: Context, tasks: Sequence[str], task_id: str) -> TrainTask:
        ti = context["ti"]
        if task_id not in tasks or task_id == ti.task_id:
            others = [task for task in tasks if task != ti.task_id]
            hint = suggestion(task_id, others)
            raise TonySpecError(
                f"train_task_id: {shown(task_id)} is no other task of the DAG {ti.dag_id!r}{hint}; it has "
                f"{', '.join(others) or 'none'}. Within a task group, write <group>.<task>"
            )
        if self.checkpoint_key and self.map_index is not None:
            raise TonySpecError("map_index and checkpoint_key are both given; keep one of them")
        index = None if self.checkpoint_key else self._index(context)
        return TrainTask(ti.dag_id, ti.run_id, task_id, index)

    def _index(self, context: Context) -> int:
        if self.map_index is None:
            return TaskRun.of(context).map_index  # in a mapped task group, both have the same
        try:
            return int(self.map_index)  # templates give text
        except (TypeError, ValueError) as error:
            raise TonySpecError(f"map_index: should be a whole number, not {shown(self.map_index)}") from error


def _check(application_id: str) -> None:
    if not is_application_id(application_id):
        raise TonySpecError(
            f"application_id: {shown(application_id)} is none; one is such as application_1700000000000_0001"
        )
