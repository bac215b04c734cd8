"""Leftovers of writers that were killed, under names that nobody else will ever look for. All functions block."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from tony_provider.runtime import contract
from tony_provider.runtime.storage.base import FileStatus, Storage, is_temporary
from tony_provider.runtime.storage.errors import StorageNotFound

# A model, or an export of one, on its way: see executor/result_upload.py.
_ON_ITS_WAY = re.compile(rf"({contract.MODEL_DIR}|{contract.export_name(0)[:-1]}\d+)\.tmp-[0-9a-f]+")


def is_leftover(status: FileStatus) -> bool:
    """Whether a file is a leftover, where nobody writes any more."""
    return is_temporary(status.name) or (status.is_directory and _ON_ITS_WAY.fullmatch(status.name) is not None)


def leftovers(storage: Storage, uri: str, *, without: Collection[str] = ()) -> Iterator[FileStatus]:
    """The leftovers below a directory, but not in those of its own directories that ``without`` names.

    Nor behind symbolic links, which may lead anywhere. Raises StorageError.
    """
    left, apart = [uri], without
    while left:
        try:
            found = storage.list(left.pop())
        except StorageNotFound:
            continue
        for status in found:
            if is_leftover(status):
                yield status
            elif status.is_directory and not status.is_link and status.name not in apart:
                left.append(status.path)
        apart = ()


def remove_leftovers(storage: Storage, uri: str, *, without: Collection[str] = ()) -> int:
    """Remove the leftovers below a directory; returns how many there were. Raises StorageError.

    Only where nobody writes any more: one that still does would fail.
    """
    found = list(leftovers(storage, uri, without=without))
    for status in found:
        storage.remove(status.path, recursive=status.is_directory)
    return len(found)
