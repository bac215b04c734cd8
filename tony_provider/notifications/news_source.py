"""Where a message's facts come from: Airflow's context, the exception, the store through the training's connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.arguments import DEFAULT_CONN_ID
from tony_provider.exceptions import TonyJobFailed, TonyJobRejected, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.notifications.composing import composed
from tony_provider.notifications.job_news import JobNews
from tony_provider.notifications.occasion import Occasion
from tony_provider.notifications.training_look import TrainingLook, look
from tony_provider.operators.task_secrets import render_secrets
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.protocol.status import JobState

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

MOST_TRAININGS = 10  # of a DAG that are looked at
_STARTED_NOTHING = (TonySpecError, TonyJobRejected)


@attrs.frozen(kw_only=True)
class NewsSource:
    """Makes the news of a training out of a callback's context.

    :param task_id: the training that it is about; None: the task itself, or of a DAG the first that has not succeeded.
    :param tony_conn_id: of the training; None: as its task says.
    :param lines: how many of the failed task's last ones.
    :param seconds: how long cluster and store may take.
    """

    log: Logger
    task_id: str | None = None
    tony_conn_id: str | None = None
    lines: int = 20
    seconds: float = 20.0

    def news(self, context: Mapping[str, Any]) -> JobNews:
        """All that can be found out; what cannot is named in it, and never raised."""
        occasion = Occasion.of(context)
        missing: list[str] = []
        looks: list[TrainingLook] = []
        try:
            looks = self._looked(context, occasion, missing)
        except Exception as error:  # noqa: BLE001 - whatever it is: the message is to be sent
            self._tell(f"{type(error).__name__}: {error}")
            missing.append(str(error))
        return composed(occasion, _foremost(looks), self.lines, missing)

    def _looked(self, context: Mapping[str, Any], occasion: Occasion, missing: list[str]) -> list[TrainingLook]:
        if isinstance(occasion.exception, _STARTED_NOTHING):
            return []
        tasks = self._tasks(context, occasion)
        looks = []
        for task_id, task in tasks.items():
            with TonyHook(*self._connection(context, task)) as hook:
                each = self._begun(hook, context, occasion, task_id, task, missing)
                look(hook, each, self.seconds / len(tasks), self._tell)
            looks.append(each)
        return looks

    def _tasks(self, context: Mapping[str, Any], occasion: Occasion) -> dict[str, TonyTrainOperator | None]:
        """The trainings that it may be about, by their ids; None: of its task nothing is known here."""
        dag = context.get("dag")
        if self.task_id is not None and self.task_id != occasion.task_id:
            return {self.task_id: _training(dag.get_task(self.task_id)) if dag is not None else None}
        if occasion.task_id is not None:
            own = _training(context.get("task"))
            return {occasion.task_id: own} if own is not None else {}
        found = {each.task_id: _training(each) for each in getattr(dag, "tasks", [])}
        return dict([(task_id, task) for task_id, task in found.items() if task is not None][:MOST_TRAININGS])

    def _connection(self, context: Mapping[str, Any], task: TonyTrainOperator | None) -> tuple[str, str | None]:
        if task is None:
            return self.tony_conn_id or DEFAULT_CONN_ID, None
        return self.tony_conn_id or _rendered(task, task.tony_conn_id, context), (
            _rendered(task, task.proxy_user, context) or None
        )

    def _begun(
        self,
        hook: TonyHook,
        context: Mapping[str, Any],
        occasion: Occasion,
        task_id: str,
        task: TonyTrainOperator | None,
        missing: list[str],
    ) -> TrainingLook:
        """What is asked of Airflow, before the cluster and the store are."""
        key = _rendered(task, task.checkpoint_key, context) or None if task is not None else None
        which: dict[str, Any] = {
            "dag_id": occasion.dag_id,
            "task_id": task_id,
            "map_index": occasion.map_index if task_id == occasion.task_id else -1,
            "checkpoint_key": key,
        }
        former = self._former_run(context, occasion, task_id, missing)
        error = occasion.exception
        return TrainingLook(
            task_id=task_id,
            identity=hook.identity(**which, run_id=occasion.run_id),
            former_run=former or "",
            former=hook.identity(**which, run_id=former) if former else None,
            application_id=error.application_id if isinstance(error, TonyJobFailed) else None,
            reads_log=self._knows_secrets(task, context),
        )

    def _former_run(
        self, context: Mapping[str, Any], occasion: Occasion, task_id: str, missing: list[str]
    ) -> str | None:
        """The last run before this one in which the training has succeeded; of another task, in which all has."""
        ti = context.get("ti")
        if ti is None or getattr(context.get("dag_run"), "logical_date", None) is None:  # Airflow orders runs by it
            missing.append("the run before: this one has no logical date" if ti is not None else "the run before")
            return None
        try:
            if ti.task_id == task_id:
                before = ti.get_previous_ti(state="success", map_index=occasion.map_index)
            else:
                before = ti.get_previous_dagrun(state="success")
        except Exception as error:  # noqa: BLE001 - Airflow may say anything, and the message is to be sent
            self._tell(f"{type(error).__name__}: {error}")
            missing.append(f"the run before: {error}")
            return None
        return before.run_id if before is not None else None

    def _knows_secrets(self, task: TonyTrainOperator | None, context: Mapping[str, Any]) -> bool:
        """Whether what the training prints can be masked: not every process that calls callbacks can know its secrets.

        The last lines within a failure's own message were masked where the training ran.
        """
        if task is None:
            return False
        try:
            render_secrets(task, context)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            self._tell(f"the training's secrets are not known here, so its log is not read: {type(error).__name__}")
            return False
        return True

    def _tell(self, problem: str) -> None:
        self.log.warning("For the notification: %s", problem)


def _training(task: Any) -> TonyTrainOperator | None:
    return task if isinstance(task, TonyTrainOperator) else None


def _rendered(task: TonyTrainOperator, text: str | None, context: Mapping[str, Any]) -> Any:
    """Return the value of a template field. A running task has values there; in a callback of its DAG, templates.

    A value is never rendered: it may come from a trigger form.
    """
    is_template = text and "{" in text and not task.is_rendered
    return task.render_template(text, context) if is_template else text  # type: ignore[arg-type]


def _foremost(looks: list[TrainingLook]) -> TrainingLook | None:
    """The first that is known not to have succeeded, else the last."""
    for each in looks:
        if each.status is not None and each.status.state is not JobState.SUCCEEDED:
            return each
    return looks[-1] if looks else None
