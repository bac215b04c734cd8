"""The mark that says who has written an output: ``_SUCCESS`` when it is complete, ``_tony.json`` before that."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.outputs.output_place import DATA_FILE
from tony_provider.runtime.storage import (
    Storage,
    StorageNotADirectory,
    StorageNotFound,
    read_bytes,
    uris,
    write_atomically,
)

_MOST_BYTES = 4096


@attrs.frozen
class OutputMark:
    """Who has written an output, or does so."""

    application_id: str
    training: str  # the name of its identity: the same over all tries
    written_ms: int = 0  # epoch, when it was complete
    files: int = 0
    bytes: int = 0
    cleared: bool = True  # what was there before is gone
    version: int = 1


def read_mark(storage: Storage, directory: str, name: str) -> Optional[OutputMark]:
    """The mark of this name in a directory; None when there is none of ours. Raises StorageError."""
    try:
        data = read_bytes(storage, uris.join(directory, name), length=_MOST_BYTES)
        return load_json(data, OutputMark, ignore_unknown=True)
    except (StorageNotFound, StorageNotADirectory, CodecError):  # Hadoop's own is empty
        return None


def write_mark(storage: Storage, directory: str, name: str, mark: OutputMark) -> None:
    """Raises StorageError."""
    write_atomically(storage, uris.join(directory, name), dump_json(mark), permission=DATA_FILE)
