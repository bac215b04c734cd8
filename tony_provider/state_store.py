"""Values that the tries of a task, and the processes of one try, leave for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tony_provider.airflow_versions.task_store import store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue

_NOTES = "The store of the jobs"


class Notes(Protocol):
    """A few small values of a training, kept for its next tries. All methods may raise any exception."""

    def get(self, key: str) -> JsonValue: ...

    def set(self, key: str, value: JsonValue) -> None: ...

    def delete(self, key: str) -> None: ...


class StateStore:
    """A task's part of Airflow's ``task_state_store``, as a cache of what is stored ``forever`` in ``notes``.

    Airflow keeps no such store before 3.3, and later versions discard it when the task is cleared. Without ``notes``
    such values may get lost.

    No method raises: no training depends on these values. An installation may have its own backend, ``[workers]
    state_store_backend``, which runs in this process and may raise any exception.
    """

    def __init__(self, context: Context, log: Logger, notes: Notes | None = None) -> None:
        self._store = store_of(context)
        self._notes = notes
        self._log = log

    @property
    def is_airflows(self) -> bool:
        """Whether Airflow itself keeps what is stored, in its database, for the portal to read."""
        return self._store.is_airflows

    def get(self, key: str, *, forever: bool = False) -> JsonValue:
        """The value that was stored under ``key``; None where there is none, or the store does not answer.

        ``forever``: as it was stored.
        """
        found: JsonValue = None
        with self._bearing(self._store.name, "tell", key):
            found = self._store.get(key, forever=forever)
        if found is None and forever and self._notes is not None:
            with self._bearing(_NOTES, "tell", key):
                found = self._notes.get(key)
        return found

    def set(self, key: str, value: JsonValue, *, forever: bool = False) -> bool:
        """Store ``value`` under ``key``, for as long as the installation keeps such things, or ``forever``.

        Returns whether it was taken.
        """
        noted = cached = False
        if forever and self._notes is not None:
            with self._bearing(_NOTES, "take", key):
                self._notes.set(key, value)
                noted = True
        with self._bearing(self._store.name, "take", key):
            cached = self._store.keep(key, value, forever=forever)
        return noted or cached

    def delete(self, key: str) -> None:
        """Forget what was stored ``forever`` under ``key``."""
        if self._notes is not None:
            with self._bearing(_NOTES, "forget", key):
                self._notes.delete(key)
        with self._bearing(self._store.name, "forget", key):
            self._store.delete(key)

    @contextmanager
    def _bearing(self, whose: str, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            self._log.warning("%s does not %s %s: %s", whose, what, key, error)
