"""The kept end of a task's output, for the log of an Airflow task that failed."""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_text
from tony_provider.runtime.storage.uris import join

TAIL_BYTES = 8 << 10


def task_log_tail(storage: Storage, application_dir: str, task: str) -> str:
    """The last TAIL_BYTES that ``task`` (such as worker:0) printed, in its last attempt; empty when nothing was kept.

    Raises StorageError.
    """
    prefix = contract.log_prefix(task)
    try:
        files = storage.list(join(application_dir, contract.LOGS_DIR))
    except StorageNotFound:
        return ""
    logs = [file for file in files if file.name.startswith(prefix)]
    if not logs:
        return ""
    newest = max(logs, key=lambda file: file.modified_ms)
    offset = max(0, newest.size - TAIL_BYTES)
    text = read_text(storage, newest.path, offset=offset)
    return text.partition("\n")[2] if offset else text
