"""Reading all that an application has left of itself, as far as it goes: while it runs, after its end, or cut short."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.history.job_specification import JobSpecification
from tony_provider.cluster.history.read_samples import read_samples
from tony_provider.cluster.results import job_status, labels
from tony_provider.runtime import contract
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.history.stored_events import read_events
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.quantities import size
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import OF_THE_STORE, StorageError, StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes

_MOST_BYTES = 4 << 20  # of a specification: more than any of ours has
_MOST_MISSING = 100  # lines


def read_history(storage: Storage, application_dir: str) -> JobHistory:
    """All that is kept of the application whose directory this is; ``missing`` names what is not there.

    Blocks, some seconds for large jobs. Raises StorageError when the store cannot be asked.
    """
    missing: list[str] = []
    specification = _specification(storage, application_dir, missing)
    status = _status(storage, application_dir, missing)
    events = list(read_events(storage, application_dir, missing))
    samples = read_samples(storage, application_dir, missing)
    if (more := len(missing) - _MOST_MISSING) > 0:
        missing[_MOST_MISSING:] = [f"and {more} more"]
    return JobHistory(
        application_id=uris.name(application_dir),
        specification=specification,
        status=status,
        events=events,
        samples=samples,
        labels=labels(storage, application_dir),
        missing=missing,
    )


def read_specification(storage: Storage, application_dir: str, missing: list[str]) -> JobSpecification | None:
    """The specification alone, which is one small file. Adds to ``missing`` why there is none. Raises as above."""
    return _specification(storage, application_dir, missing)


def _status(storage: Storage, application_dir: str, missing: list[str]) -> JobStatus | None:
    """The result, or else the newest status; that also where the result cannot be read."""
    for may_have_ended in (True, False):
        try:
            status = job_status(storage, application_dir, may_have_ended=may_have_ended)
        except OF_THE_STORE:
            raise
        except (RecordUnreadable, StorageError) as error:
            if (said := f"status: {error}") not in missing:
                missing.append(said)
            continue
        if status is None:
            missing.append("status: the application master has written none (yet)")
        else:
            _check_version("status", status.version, JobStatus, missing)
        return status
    return None


def _check_version(what: str, found: int, cls: type[Any], missing: list[str]) -> None:
    known = attrs.fields(cls).version.default
    if found > known:
        missing.append(f"{what}: it has form {found}, of a later release: what form {known} has not is left out")


def _specification(storage: Storage, application_dir: str, missing: list[str]) -> JobSpecification | None:
    uri = uris.join(application_dir, contract.HISTORY_DIR, contract.SPECIFICATION_FILE)
    data = _bytes(storage, uri, missing)
    if data is None:
        missing.append("specification: it was not kept")
        return None
    try:
        found = load_json(data, JobSpecification)
    except CodecError as error:
        missing.append(f"specification: {uri} cannot be read: {error}")
        return None
    _check_version("specification", found.version, JobSpecification, missing)
    return found


def _bytes(storage: Storage, uri: str, missing: list[str]) -> bytes | None:
    """None when there is no such file, or it cannot be read."""
    try:
        data = read_bytes(storage, uri, length=_MOST_BYTES + 1)
    except StorageNotFound:
        return None
    except OF_THE_STORE:
        raise
    except StorageError as error:
        missing.append(f"{uris.name(uri)}: {error}")
        return None
    if len(data) > _MOST_BYTES:
        missing.append(f"{uris.name(uri)}: it is larger than {size(_MOST_BYTES)}: the rest is not read")
    return data[:_MOST_BYTES]
