"""The kept end of a task's output, for the log of an Airflow task that failed."""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.helpers import read_bytes
from tony_provider.runtime.storage.uris import join

TAIL_BYTES = 8 << 10


def task_log_tail(storage: Storage, application_dir: str, task: str) -> str:
    """The last TAIL_BYTES that ``task`` (such as worker:0) printed. Raises StorageError, when nothing was kept too."""
    uri = join(application_dir, contract.LOGS_DIR, f"{task.replace(':', '-')}.log")
    offset = max(0, storage.status(uri).size - TAIL_BYTES)
    text = read_bytes(storage, uri, offset=offset).decode("utf-8", "replace")
    return text.partition("\n")[2] if offset else text
