"""Small files on the job's store that the tries of a training leave for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.foreign_json import read_json
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_whole, write_atomically

if TYPE_CHECKING:
    from pydantic import JsonValue

_STORE_SECONDS = 5.0  # that the store may be away: a training does not depend on what is here


@attrs.frozen
class TrainingNotes:
    """In the directory of the training, a file for each key, where its job may write: they are hints.

    Its methods may raise what the store raises.
    """

    hook: TonyHook
    identity: Callable[[], Identity]

    def get(self, key: str) -> JsonValue:
        """None where there is none."""
        try:
            found: JsonValue = read_json(read_whole(self._storage(), self._file(key), RECORD))
        except StorageNotFound:
            return None
        return found

    def set(self, key: str, value: JsonValue) -> None:
        write_atomically(self._storage(), self._file(key), dump_json(value))

    def delete(self, key: str) -> None:
        self._storage().remove(self._file(key))

    def _storage(self) -> Storage:
        self.hook.expect_store(_STORE_SECONDS)
        return self.hook.storage()

    def _file(self, key: str) -> str:
        return uris.join(self.hook.layout.notes_dir(self.identity()), f"{key}.json")
