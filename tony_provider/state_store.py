"""Airflow's store of a task: what its tries, and the processes of one try, tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tony_provider.airflow_versions.task_store import Notes, store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue


class StateStore:
    """A task's part of Airflow's ``task_state_store``. It may lose what it was given: nobody's training depends on it.

    Nothing here raises. An installation may have a backend of its own for it, ``[workers] state_store_backend``, which
    runs in this process and may raise anything. Before Airflow 3.3 there is none, and ``notes`` keep what is stored
    forever.
    """

    def __init__(self, context: Context, log: Logger, notes: Notes | None = None) -> None:
        self._store = store_of(context, notes)
        self._log = log

    @property
    def is_airflows(self) -> bool:
        """Whether Airflow itself keeps what is stored, in its database, for the portal to read."""
        return self._store.is_airflows

    def get(self, key: str, *, forever: bool = False) -> JsonValue:
        """The value that was stored under ``key``; None where there is none, or the store does not answer.

        ``forever``: as it was stored.
        """
        with self._bearing("tell", key):
            return self._store.get(key, forever=forever)
        return None

    def set(self, key: str, value: JsonValue, *, forever: bool = False) -> bool:
        """Store ``value`` under ``key``, for as long as the installation keeps such things, or ``forever``.

        Returns whether it was taken.
        """
        with self._bearing("take", key):
            return self._store.keep(key, value, forever=forever)
        return False

    def delete(self, key: str) -> None:
        """Forget what was stored ``forever`` under ``key``."""
        with self._bearing("forget", key):
            self._store.delete(key)

    @contextmanager
    def _bearing(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            self._log.warning("%s does not %s %s: %s", self._store.name, what, key, error)
