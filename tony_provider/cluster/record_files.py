"""Small files of a training on the store, as Airflow's side reads them back."""

from __future__ import annotations

from typing import TypeVar

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.quantities import size
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes

T = TypeVar("T")

_MOST_BYTES = 64 << 20  # the status of ten thousand tasks is less than ten


def read_record(storage: Storage, uri: str, cls: type[T], *, without: str) -> T | None:
    """What a small file on the store says, as ``cls``; None when there is no such file.

    Keys that this version does not know are left out.

    :param without: what happens once the file is removed, for people who have to choose.

    Raises StorageError, and RecordUnreadable for what somebody has changed, or a newer version has written.
    """
    try:
        data = read_bytes(storage, uri, length=_MOST_BYTES + 1)
    except StorageNotFound:
        return None
    if len(data) > _MOST_BYTES:
        raise RecordUnreadable(uri, f"it is larger than {size(_MOST_BYTES)}, which none of ours is", without)
    try:
        return load_json(data, cls, ignore_unknown=True)
    except CodecError as error:
        raise RecordUnreadable(uri, str(error), without) from error
