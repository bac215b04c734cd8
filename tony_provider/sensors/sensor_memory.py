"""What a rescheduled sensor keeps in Airflow's store for its next poke, which is another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.runtime.codec import CodecError, from_plain
from tony_provider.state_store import StateStore
from tony_provider.watching.sensor_conditions import SensorMemory

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger

_KEY = "tony_sensor_memory"


def remember(context: Context, memory: SensorMemory, log: Logger) -> None:
    """Keep the memory in Airflow's store for the next poke of this try."""
    StateStore(context, log).set(_KEY, {"try": context["ti"].try_number, **attrs.asdict(memory)})


def recall(context: Context, log: Logger) -> SensorMemory | None:
    """What the last poke of this try has kept; None at the first poke."""
    if not context.get("task_reschedule_count"):
        return None
    kept: Any = StateStore(context, log).get(_KEY)
    if not isinstance(kept, dict) or kept.get("try") != context["ti"].try_number:
        return None
    try:
        return from_plain(kept, SensorMemory, ignore_unknown=True)
    except CodecError as error:  # more people write there than may change the task
        log.warning("What the last poke has kept cannot be read, and is forgotten: %s", error)
        return None
