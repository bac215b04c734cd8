"""Metadata of Orbax: small manifests of databases, and JSON files with the content of a step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

from tony_provider.runtime.checkpoint.content.crc32c import crc32c
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count, json_object, whole

_DATABASE_MAGIC = bytes.fromhex("0cdb3a2a")
_MOST_BYTES = 32 << 20  # of a manifest, and of a tree
_OF_ARRAYS = ("jax.Array", "np.ndarray")


def check_database(path: Path) -> None:
    """Check that a database's manifest is complete. Raises Unreadable, OSError."""
    data = whole(path, _MOST_BYTES)
    if data[:4] != _DATABASE_MAGIC or int.from_bytes(data[4:12], "little") != len(data):
        raise Unreadable("it is not a complete manifest of a database")
    if crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Unreadable("it is damaged: its checksum is wrong")


def is_committed(path: Path) -> bool:
    """Return whether a step was committed, from its metadata. Raises Unreadable, OSError."""
    return json_object(path, _MOST_BYTES).get("commit_timestamp_nsecs", 0) is not None


def arrays(path: Path) -> Optional[list[str]]:
    """Return the names of a tree's array directories, which are next to it, or None if a database holds the arrays.

    Raises Unreadable, OSError.
    """
    tree = json_object(path, _MOST_BYTES)
    return None if tree.get("use_ocdbt", True) else [_name(entry) for entry in _array_entries(tree)]


def pieces(path: Path) -> int:
    """Return the number of files of an array from its metadata, or 0 if it is unknown.

    Raises Unreadable, OSError.
    """
    array = json_object(path, _MOST_BYTES)
    chunks, shape = array.get("chunks"), array.get("shape")
    if not isinstance(chunks, list) or not isinstance(shape, list):
        return 0
    if not all(map(is_count, [*chunks, *shape])):
        raise Unreadable("its shape is invalid")
    wanted = math.prod(-(-whole // piece) for whole, piece in zip(shape, chunks) if piece)
    if not is_count(wanted):
        raise Unreadable("its number of files is impossibly large")
    return int(wanted)


def _array_entries(tree: dict[str, Any]) -> list[dict[str, Any]]:
    listed = tree.get("tree_metadata")
    entries = [each for each in listed.values() if isinstance(each, dict)] if isinstance(listed, dict) else []
    values = ((each, each.get("value_metadata")) for each in entries)
    return [each for each, value in values if isinstance(value, dict) and value.get("value_type") in _OF_ARRAYS]


def _name(entry: dict[str, Any]) -> str:
    keys = entry.get("key_metadata")
    return ".".join(str(key.get("key")) for key in keys if isinstance(key, dict)) if isinstance(keys, list) else ""
