"""What an application has left on the store about how it went, and whether Airflow has taken note of it."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.cluster.bounded_status import StatusRefused, checked
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.record_files import read_record
from tony_provider.runtime import contract, most_bytes
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.foreign_json import RETURNED_DEEPEST, ForeignJsonError, read_json
from tony_provider.runtime.history.stored_events import first_event
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.reserved_keys import WHY, reserved_key
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge
from tony_provider.runtime.storage.helpers import read_whole, write_atomically

_NO_TRY = -1


@attrs.frozen
class Delivered:
    """``delivered.json``: the mark that Airflow has the application's result, with the try that returned it.

    Writing it is the task's last act before it returns.
    """

    try_number: int
    max_tries: int  # the last try that Airflow allowed then; raised when the task is cleared
    delivered_ms: int = attrs.field(factory=epoch_ms)  # epoch
    version: int = 1

    @classmethod
    def gone(cls) -> Delivered:
        """The mark of a result that is no use any more, whoever had it: what it names was removed."""
        return cls(0, _NO_TRY)

    def reached_airflow(self, try_number: int, max_tries: int) -> bool:
        """Whether Airflow called the try that left the mark a success, seen from a later try.

        It did if somebody has cleared the task since, or has made the run anew. A mere retry says that it did not: the
        worker died, or Airflow's own server did not take the result, between the task's last act and its end.
        """
        return not (max_tries == self.max_tries and try_number > self.try_number)


def job_status(storage: Storage, application_dir: str, *, may_have_ended: bool = True) -> JobStatus | None:
    """Return the job's result if it has ended, otherwise its status, or None if its master has not written either yet.

    Without ``may_have_ended`` read only the status.

    Raises StorageError. Raises RecordUnreadable if the file is not a status, or names places outside of the job's own.
    """
    without = "what the cluster says of the application counts"
    for name in (contract.RESULT_FILE, contract.STATUS_FILE)[not may_have_ended :]:
        uri = uris.join(application_dir, name)
        found = read_record(storage, uri, JobStatus, without=without, most_bytes=most_bytes.STATUS)
        if found is not None:
            try:
                return checked(found, application_dir)
            except StatusRefused as error:
                raise RecordUnreadable(uri, str(error), without) from error
    return None


def labels(storage: Storage, application_dir: str) -> dict[str, str]:
    """The labels that the application was submitted with: where it came from (dag, run, task, try).

    They are in what its master is told, which is there as long as it lives, and in its first event. Empty where neither
    can be read. Raises StorageError.
    """
    told = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        found = read_json(read_whole(storage, told, most_bytes.APPLICATION))["labels"]
    except (StorageNotFound, StorageTooLarge, ForeignJsonError, KeyError, TypeError):
        found = first_event(storage, application_dir).get("labels")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def is_of_result(error: RecordUnreadable) -> bool:
    """Whether the unreadable file is the job's result, and not only its status on the way, which decides nothing."""
    return uris.name(error.uri) == contract.RESULT_FILE


def returned(storage: Storage, application_dir: str) -> Any:
    """What a job that has succeeded left in TONY_RESULT_FILE; None when it left nothing.

    Raises StorageError, RecordUnreadable.
    """
    uri = uris.join(application_dir, contract.RETURN_VALUE_FILE)
    without = "the job counts as one that returned nothing"
    try:
        found = read_json(read_whole(storage, uri, most_bytes.RETURN_VALUE), deepest=RETURNED_DEEPEST)
    except StorageNotFound:
        return None
    except StorageTooLarge as error:
        raise RecordUnreadable(uri, error.problem, without) from error
    except ForeignJsonError as error:
        raise RecordUnreadable(uri, f"not JSON: {error}", without) from error
    if key := reserved_key(found):
        raise RecordUnreadable(uri, f"it holds {key!a}, which {WHY}", without)
    return found


def delivered(storage: Storage, application_dir: str) -> Delivered | None:
    """The mark that Airflow has the application's result; None when there is none.

    Raises StorageError, RecordUnreadable.
    """
    without = "a success counts as one that Airflow has not heard of"
    return read_record(storage, uris.join(application_dir, contract.DELIVERED_FILE), Delivered, without=without)


def mark_delivered(storage: Storage, application_dir: str, mark: Delivered) -> None:
    """Write the mark that Airflow has the application's result. Raises StorageError."""
    write_atomically(storage, uris.join(application_dir, contract.DELIVERED_FILE), dump_json(mark))
