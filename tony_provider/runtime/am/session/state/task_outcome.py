"""How a task has ended that is over before its job is, as the next application master must know it."""

from __future__ import annotations

from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.protocol.status import Failure, TaskProgress


@attrs.frozen
class TaskOutcome:
    """The end of a task that needs no container any more."""

    failure: Optional[Failure] = None  # None: it has succeeded
    model_dir: str = ""  # URI; empty: it left none
    progress: Optional[TaskProgress] = None
    outputs: list[OutputPart] = attrs.field(factory=list)  # what it left for outputs of the job


def over(task: Task, outcome: TaskOutcome) -> dict[str, Any]:
    """The part of its TaskHistory by which nobody runs it again."""
    task.recorded = True
    return {"outcome": to_plain(outcome)}


def not_over(task: Task) -> dict[str, Any]:
    """The part of its TaskHistory by which it runs again after all; empty where nothing says otherwise."""
    was_recorded, task.recorded = task.recorded, False
    return {"outcome": None} if was_recorded else {}
