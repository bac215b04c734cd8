"""Warns if the quotas of HDFS may soon stop checkpoints from being stored."""

from __future__ import annotations

import logging
import time

from tony_provider.runtime.checkpoint.checkpoint_model import Manifest
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage import Storage, StorageError, uris
from tony_provider.runtime.storage.base import QuotaRoom

log = logging.getLogger(__name__)

_PAUSE = 300.0  # seconds between two checks
_NAMES = 3  # of a checkpoint in addition to its objects: its directory, its manifest, and a temporary file
_ABOVE_CHAIN = 3  # number of levels from a chain up to the staging directory


class QuotaWatch:
    """Compares the space that quotas leave with the size of the newest checkpoint.

    It checks the staging directory and the directory above it, such as a user's home directory. NameNodes know the
    free space of a directory with a quota. Otherwise they count its content, so such a directory is checked once.
    """

    def __init__(self, storage: Storage, chain_uri: str, keep: int) -> None:
        """``keep``: the number of checkpoints that stay."""
        self._storage = storage
        self._wanted = keep + 1
        self._directories = _directories(chain_uri)
        self._next_check = float("-inf")
        self._warning = ""

    def check(self, newest: Manifest) -> str:
        """Return a warning, or an empty text. Blocks, at most once in five minutes. Raises no StorageError."""
        now = time.monotonic()
        if now < self._next_check:
            return self._warning
        self._next_check = now + _PAUSE
        rooms = {}
        for directory in list(self._directories):
            try:
                room = self._storage.quota_room(directory)
            except StorageError as error:
                log.warning("the quota of %s is unknown: %s", directory, error)
                continue
            if room is None:
                self._directories.remove(directory)
            else:
                rooms[directory] = room
        warnings = (self._warn(directory, room, newest) for directory, room in rooms.items())
        found = next(filter(None, warnings), "")
        self._warning = found and (self._warning or found)  # the text stays the same while the problem lasts
        return self._warning

    def _warn(self, directory: str, room: QuotaRoom, newest: Manifest) -> str:
        new = [name for name in newest.objects if newest.is_new(name)]
        if room.bytes is not None and room.bytes < self._wanted * newest.sent:
            left, took = size(room.bytes), size(newest.sent)
        elif room.names is not None and room.names < self._wanted * (len(new) + _NAMES):
            left, took = count(room.names, "name"), count(len(new) + _NAMES, "name")
        else:
            return ""
        return (
            f"the quota of {directory} leaves {left}, and the newest checkpoint took {took}: checkpoint.keep + 1 "
            f"({self._wanted}) more may not fit. Raise the quota, or remove old trainings (airflow tony gc)"
        )


def _directories(chain_uri: str) -> list[str]:
    staging = chain_uri
    for _ in range(_ABOVE_CHAIN):
        staging = uris.parent(staging)
    above = uris.parent(staging)
    # Directories at the top, such as /user, are shared by all users, and their content takes long to count.
    return [each for each in (above, staging) if uris.parse(each).path.count("/") >= 2]
