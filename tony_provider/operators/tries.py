"""Which try of a task this is, and what Airflow keeps of it between tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks it
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.cluster.results import Delivered

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger

STATE_KEY = "tony_application_id"


@attrs.frozen
class Try:
    number: int
    max_tries: int  # the last one that Airflow allows; raised when the task is cleared

    @classmethod
    def of(cls, context: Context) -> Try:
        ti = context["ti"]
        return cls(ti.try_number, ti.max_tries)

    def delivers(self) -> Delivered:
        """The mark that this try leaves when it has a result."""
        return Delivered(self.number, self.max_tries)

    def follows_success(self, mark: Delivered) -> bool:
        """Whether Airflow called the try that left the mark a success: somebody has cleared the task since then."""
        return mark.reached_airflow(self.number, self.max_tries)


def remember(context: Context, application_id: str, log: Logger) -> None:
    """In Airflow's store, which is a cache: the store of the jobs says the same, and is believed first."""
    try:
        context["task_state_store"].set(STATE_KEY, application_id, retention=NEVER_EXPIRE)
    except AirflowRuntimeError as error:
        log.warning("Airflow's task_state_store did not take the application's id: %s", error)


def remembered(context: Context, log: Logger) -> str | None:
    try:
        found = context["task_state_store"].get(STATE_KEY)
    except AirflowRuntimeError as error:
        log.warning("Airflow's task_state_store did not answer: %s", error)
        return None
    return found if isinstance(found, str) else None
