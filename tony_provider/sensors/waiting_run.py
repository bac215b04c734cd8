"""What a sensor's module needs of the part that runs, which no DAG file is to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, PokeReturnValue


class WaitingRun(Protocol):
    """One process of a sensor's task: see ``SensorRun``."""

    def poke(self, context: Context) -> bool | PokeReturnValue: ...

    def defer(self, context: Context) -> NoReturn: ...

    def defer_again(self, context: Context) -> None: ...

    def go_on(self, event: Mapping[str, Any]) -> dict[str, Any] | None: ...

    def until(self, context: Context) -> float: ...

    @property
    def is_limited(self) -> bool: ...

    @property
    def took_too_long(self) -> str: ...
