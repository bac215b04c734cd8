"""Why a callback is called: what Airflow says of the task, the run or the deadline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import attrs
from airflow.providers.common.compat.sdk import conf

from tony_provider.run_dates import known_run_date

_SUCCESS, _RETRY, _RUNNING = "success", "up_for_retry", "running"


@attrs.frozen(kw_only=True)
class Occasion:
    """What Airflow hands to a callback, whichever kind it is of."""

    dag_id: str
    run_id: str
    task_id: str | None = None  # None: it is about the run of the DAG
    map_index: int = -1  # -1: not mapped
    try_number: int | None = None
    tries: int | None = None  # that Airflow allows at all
    state: str | None = None  # of the task or the run, as Airflow calls it; None: a deadline was missed
    date: str = ""  # of the run; empty: it is unknown
    exception: BaseException | None = None
    reason: str = ""  # Airflow's own, of a run's end
    address: str = ""  # of Airflow's page about it

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Occasion:
        """By the context of a callback of a task or a DAG, or of a deadline."""
        ti, run = context.get("ti"), context.get("dag_run")
        dag_id = getattr(ti, "dag_id", None) or _of(run, "dag_id") or getattr(context.get("dag"), "dag_id", "")
        run_id = context.get("run_id") or _of(run, "run_id") or _of(run, "dag_run_id") or ""
        about: dict[str, Any] = {"dag_id": str(dag_id), "run_id": str(run_id), "date": _date(known_run_date(run))}
        if ti is None or "reason" in context:
            return cls(
                **about,
                state=None if "deadline" in context else _state_of_run(context),
                reason=str(context.get("reason") or ""),
                address=_address(str(dag_id), str(run_id)),
            )
        error = context.get("exception")
        return cls(
            **about,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            try_number=ti.try_number,
            tries=None if getattr(ti, "max_tries", None) is None else ti.max_tries + 1,
            # None where Airflow has found a task dead, and calls its callbacks elsewhere.
            state=_value(getattr(ti, "state", None)) or "failed",
            exception=error if isinstance(error, BaseException) else None,
            reason="" if isinstance(error, BaseException) else str(error or ""),
            address=str(ti.log_url),
        )

    @property
    def has_succeeded(self) -> bool:
        return self.state == _SUCCESS

    @property
    def has_failed(self) -> bool:
        return self.state not in (None, _SUCCESS, _RUNNING)

    @property
    def is_tried_again(self) -> bool:
        return self.state == _RETRY

    @property
    def name(self) -> str:
        """For people: what it is about, and of which date."""
        what = f"{self.dag_id}.{self.task_id}" if self.task_id else self.dag_id
        if self.map_index >= 0:
            what += f"[{self.map_index}]"
        return f"{what} of {self.date or self.run_id}"


def _value(state: Any) -> str:
    return str(getattr(state, "value", state) or "")


def _state_of_run(context: Mapping[str, Any]) -> str:
    return _SUCCESS if context.get("reason") == _SUCCESS else "failed"


def _of(run: Any, name: str) -> Any:
    """A deadline's callback gets the run as JSON, others as an object."""
    return run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)


def _date(date: datetime | None) -> str:
    """Without the time at midnight."""
    text = date.isoformat() if date is not None else ""
    day, _, time = text.partition("T")
    return day if time.startswith("00:00:00") else text[:16]


def _address(dag_id: str, run_id: str) -> str:
    base = conf.get("api", "base_url", fallback="") or ""
    return f"{base.rstrip('/')}/dags/{quote(dag_id)}/runs/{quote(run_id)}" if base else ""
