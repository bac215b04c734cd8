"""The base of triggers that are told when a user's action on their task has ended them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.triggers.base import BaseTrigger

from tony_provider.airflow_versions.capabilities import TRIGGERS_ARE_KILLED
from tony_provider.runtime.deadline import within

KILL_SECONDS = 30.0  # that on_kill may take: Airflow's default for [triggerer] on_kill_timeout


class KilledTrigger(BaseTrigger):
    """A trigger whose ``on_kill`` is called when a user marks or clears its task, by any Airflow.

    Those before 3.3 cancel triggers for many a reason, and tell none: ``on_kill`` has to ask what became of the task.
    """

    has_told = False  # that there is nothing more to wait for: to be set before an event is yielded

    if not TYPE_CHECKING and not TRIGGERS_ARE_KILLED.is_here:

        async def cleanup(self) -> None:
            """Called by Airflow when ``run`` has ended, however that was. What it raises Airflow would swallow."""
            if self.has_told:
                return
            try:
                await within(self.on_kill(), KILL_SECONDS)
            except Exception:
                self.log.exception("What the cancelled trigger had to do is not done")
