"""What Airflow calls when a trigger does not do its part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import BaseOperator, TaskDeferred
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason


class TriggersFail(BaseOperator):
    """Mixed into an operator: whenever it is deferred, its trigger ends as ``how`` says, once ``act`` has returned.

    ``act`` is given the deferral.
    """

    def __init__(self, *, how: TriggerFailureReason, act: Callable[[TaskDeferred], None], **arguments: Any) -> None:
        super().__init__(**{**arguments, "deferrable": True})
        self.how = how
        self.act = act

    def execute(self, context: Any) -> Any:
        call = partial(super().execute, context)
        while True:
            try:
                return call()
            except TaskDeferred as deferral:
                self.act(deferral)
                call = partial(self.resume_execution, TRIGGER_FAIL_REPR, {"error": self.how}, context)
