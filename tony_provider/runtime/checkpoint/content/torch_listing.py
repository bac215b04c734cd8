"""File lists of PyTorch checkpoints: the metadata of a distributed checkpoint, and an index of shards."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.checkpoint.content import pickles
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, json_object

_MOST_BYTES = 32 << 20  # of an index


def ends(path: Path) -> dict[str, int]:
    """Return the minimum size of each file. A ``_StorageInfo`` has each tensor's place: file, offset, length.

    Raises Unreadable, OSError.
    """
    with path.open("rb") as file:
        plain = pickles.read(file)
    found: dict[str, int] = {}
    for state in plain.states:
        name = state.get("relative_path") if isinstance(state, dict) else None
        offset, length = pickles.number_at(state, "offset"), pickles.number_at(state, "length")
        if isinstance(name, str) and offset is not None and length is not None:
            found[name] = max(found.get(name, 0), offset + length)
    return found


def shards(path: Path) -> list[str]:
    """Return the files that an index lists. Raises Unreadable, OSError."""
    listed = json_object(path, _MOST_BYTES).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise Unreadable("it names no files")
    return sorted(set(listed.values()))
