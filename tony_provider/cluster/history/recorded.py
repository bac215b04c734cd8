"""An application's history as its own records tell it: status, events, labels."""

from __future__ import annotations

import json
from typing import Any

from tony_provider.cluster import results
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.runtime import contract
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes


def recorded_history(storage: Storage, application_dir: str, application_id: str) -> JobHistory:
    """What is there of it. Raises StorageError where the store does not answer."""
    missing: list[str] = []
    status = None
    try:
        status = results.job_status(storage, application_dir)
        if status is None:
            missing.append("status: its master has written none")
    except RecordUnreadable as error:
        missing.append(f"status: {error}")
    return JobHistory(
        application_id=application_id,
        status=status,
        events=_events(storage, application_dir, missing),
        labels=results.labels(storage, application_dir),
        missing=missing,
    )


def _events(storage: Storage, application_dir: str, missing: list[str]) -> list[dict[str, Any]]:
    try:
        data = read_bytes(storage, uris.join(application_dir, contract.EVENTS_FILE))
    except StorageNotFound:
        missing.append("events: none are there")
        return []
    found, damaged = [], 0
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the last one, where the writer died
            damaged += 1
            continue
        if isinstance(event, dict):
            found.append(event)
    if damaged:
        missing.append(f"events: {damaged} cannot be read")
    return found
