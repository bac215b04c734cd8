"""What an application has left on the store of how it went, and whether Airflow has taken note of it."""

from __future__ import annotations

import time

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.records import read_record
from tony_provider.runtime import contract
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.helpers import write_atomically


@attrs.frozen
class Delivered:
    """``delivered.json``: the task's last act before it returned, with which of its tries that was."""

    try_number: int
    max_tries: int  # the last try that Airflow allowed then; raised when the task is cleared
    delivered_ms: int = attrs.field(factory=lambda: time.time_ns() // 1_000_000)  # epoch
    version: int = 1

    def reached_airflow(self, try_number: int, max_tries: int) -> bool:
        """Seen from a later try: whether Airflow called that one a success.

        It did if somebody has cleared the task since, or has made the run anew. A mere retry says that it did not: the
        worker died, or Airflow's own server did not take the result, between the task's last act and its end.
        """
        return not (max_tries == self.max_tries and try_number > self.try_number)


def job_status(storage: Storage, application_dir: str) -> JobStatus | None:
    """The job's result if it has ended, else its status; None when its master has not written any yet.

    Raises StorageError, and RecordUnreadable when what is there is not a status.
    """
    without = "what the cluster says of the application counts"
    for name in (contract.RESULT_FILE, contract.STATUS_FILE):
        found = read_record(storage, uris.join(application_dir, name), JobStatus, without=without)
        if found is not None:
            return found
    return None


def is_of_result(error: RecordUnreadable) -> bool:
    """Whether the job has left a result, and not only what it said of itself on the way, which decides nothing."""
    return uris.name(error.uri) == contract.RESULT_FILE


def delivered(storage: Storage, application_dir: str) -> Delivered | None:
    """Raises StorageError, RecordUnreadable."""
    without = "a success counts as one that Airflow has not heard of"
    return read_record(storage, uris.join(application_dir, contract.DELIVERED_FILE), Delivered, without=without)


def mark_delivered(storage: Storage, application_dir: str, mark: Delivered) -> None:
    """Raises StorageError."""
    write_atomically(storage, uris.join(application_dir, contract.DELIVERED_FILE), dump_json(mark))
