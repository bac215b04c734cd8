"""The table of readers for files of checkpoints, by name.

A reader takes a path and returns JSON types, because it may run in a separate process. It raises Unreadable and
OSError.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Callable

import attrs

from tony_provider.runtime.artifacts.checksum import ALGORITHMS, file_checksum
from tony_provider.runtime.checkpoint.content import (
    bundle,
    hdf5,
    keras_file,
    manifest_file,
    numpy_file,
    orbax_file,
    torch_file,
    torch_listing,
    trainer_state,
    zips,
)
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable

READERS: Mapping[str, Callable[[Path], Any]] = {
    "array": orbax_file.pieces,
    "bundle": bundle.read,
    "database": orbax_file.check_database,
    "ends": torch_listing.ends,
    "epoch": keras_file.epoch,
    "hdf5": hdf5.check,
    "keras": keras_file.check_archive,
    "manifest": manifest_file.read,
    "npy": numpy_file.check_array,
    "npz": numpy_file.read_archive,
    "shards": torch_listing.shards,
    "step": orbax_file.is_committed,
    "torch": lambda path: attrs.astuple(torch_file.read(path)),
    "trainer": trainer_state.global_step,
    "tree": orbax_file.arrays,
    "zip": zips.check_any,
    **{f"checksum {algorithm}": partial(file_checksum, algorithm=algorithm) for algorithm in ALGORITHMS},
}


def read_here(reader: str, path: Path) -> Any:
    """Return a reader's result for a file, in this process. Raises Unreadable, OSError.

    Other exceptions of a reader become Unreadable, so that a file never prevents reading the others.
    """
    try:
        return READERS[reader](path)
    except (Unreadable, OSError):
        raise
    except MemoryError as error:
        raise Unreadable("reading it needs too much memory") from error
    except Exception as error:
        raise Unreadable(f"it cannot be read: {type(error).__name__}: {error}") from error
