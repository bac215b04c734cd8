"""The token of a notebook, where its owner finds it again: beside the description of its application, while that lives.

It is the only value of a secret that is on the store, and worth nothing without a way to the notebook's port.
"""

from __future__ import annotations

import attrs

from tony_provider.cluster.record_files import read_record
from tony_provider.runtime import contract
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.helpers import write_atomically


@attrs.frozen
class NotebookAccess:
    """What lets its owner in."""

    token: str = attrs.field(repr=False)
    version: int = 1


def write_access(storage: Storage, application_dir: str, access: NotebookAccess) -> None:
    """Raises StorageError."""
    write_atomically(storage, _uri(application_dir), dump_json(access))


def read_access(storage: Storage, application_dir: str) -> NotebookAccess | None:
    """None where the application is no notebook, or has ended. Raises StorageError, RecordUnreadable."""
    without = "the notebook cannot be reached again"
    return read_record(storage, _uri(application_dir), NotebookAccess, without=without)


def _uri(application_dir: str) -> str:
    return uris.join(application_dir, contract.LAUNCH_DIR, contract.NOTEBOOK_FILE)
