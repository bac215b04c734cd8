"""Airflow's ``task_state_store``: what the tries of one task, and the processes of one try, tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks it

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue


class StateStore:
    """A task's part of Airflow's ``task_state_store``. It may lose what it was given: nobody's training depends on it.

    Nothing here raises. An installation may have a backend of its own for it, ``[workers] state_store_backend``, which
    runs in this process and may raise anything.
    """

    def __init__(self, context: Context, log: Logger) -> None:
        self._context = context
        self._log = log

    def get(self, key: str) -> JsonValue:
        """The value that was stored under ``key``; None where there is none, or the store does not answer."""
        with self._bearing("tell", key):
            return self._context["task_state_store"].get(key)
        return None

    def set(self, key: str, value: JsonValue, *, forever: bool = False) -> bool:
        """Store ``value`` under ``key``, for as long as the installation keeps such things, or ``forever``.

        Returns whether it was taken.
        """
        with self._bearing("take", key):
            self._context["task_state_store"].set(key, value, retention=NEVER_EXPIRE if forever else None)
            return True
        return False

    def delete(self, key: str) -> None:
        with self._bearing("forget", key):
            self._context["task_state_store"].delete(key)

    @contextmanager
    def _bearing(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            self._log.warning("Airflow's task_state_store does not %s %s: %s", what, key, error)
