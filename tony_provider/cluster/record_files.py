"""Small files of a training on the store, as Airflow's side reads them back."""

from __future__ import annotations

from typing import TypeVar

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.runtime.codec import CodecError, from_plain
from tony_provider.runtime.foreign_json import ForeignJsonError, made_printable, read_json
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.quantities import size
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge
from tony_provider.runtime.storage.helpers import read_whole

T = TypeVar("T")


def read_record(storage: Storage, uri: str, cls: type[T], *, without: str, most_bytes: int = RECORD) -> T | None:
    """What a small file on the store says, as ``cls``; None when there is no such file.

    Keys that this version does not know are left out, and so is what a terminal obeys.

    :param without: what happens once the file is removed, for people who have to choose.
    :param most_bytes: what is larger is no record of ours.

    Raises StorageError, and RecordUnreadable for what somebody has changed, or a newer version has written.
    """
    try:
        data = read_whole(storage, uri, most_bytes)
    except StorageNotFound:
        return None
    except StorageTooLarge as error:
        raise RecordUnreadable(uri, f"it is larger than {size(most_bytes)}, which none of ours is", without) from error
    try:
        return from_plain(made_printable(read_json(data)), cls, ignore_unknown=True)
    except CodecError as error:
        raise RecordUnreadable(uri, str(error), without) from error
    except ForeignJsonError as error:
        raise RecordUnreadable(uri, f"not JSON: {error}", without) from error
