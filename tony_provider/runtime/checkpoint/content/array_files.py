"""NumPy files (``.npz`` archives, ``.npy`` arrays) and Orbax files (databases, metadata of trees and arrays)."""

from __future__ import annotations

import ast
import math
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Optional, cast
from zipfile import ZipFile

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.zips import Unreadable, is_count, json_object, whole
from tony_provider.runtime.common.binary import crc32c

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 64 << 10  # bytes; larger than NumPy's own limit for untrusted files, which is 10,000
_STEPS = ("global_step", "step", "iteration", "iter", "epoch")  # names of arrays that may contain the step
_MOST_DIMENSIONS = 64  # NumPy's own limit
_WIDTHS = ("1", "2", "4", "8")  # sizes of integer types in bytes


def read_npz(path: Path) -> Optional[int]:
    """Check a ``.npz`` archive. Return the step in it, or None if it has none. Raises Unreadable, OSError."""
    with zips.open_zip(path) as archive:
        zips.check_zip(archive)
        members = set(archive.namelist())
        numbers = (_number(archive, f"{key}.npy") for key in _STEPS if f"{key}.npy" in members)
        return next((number for number in numbers if number is not None), None)


def _number(archive: ZipFile, member: str) -> Optional[int]:
    with archive.open(member) as opened:
        header = _header(cast(BinaryIO, opened))
        kind = header["descr"]
        if header["shape"] != () or not isinstance(kind, str) or kind[1:2] not in ("i", "u") or kind[2:] not in _WIDTHS:
            return None
        value = int.from_bytes(opened.read(int(kind[2:])), "big" if kind[0] == ">" else "little", signed=kind[1] == "i")
        return value if is_count(value) else None


def check_npy(path: Path) -> bool:
    """Check the size of a ``.npy`` file. Return False if its header does not determine the size.

    Raises Unreadable, OSError.
    """
    with path.open("rb") as file:
        header = _header(file)
        kind, shape = header["descr"], header["shape"]
        if not isinstance(kind, str) or not kind[2:].isdecimal() or len(kind) > 20 or kind[1:2] == "O":
            return False
        wide = 4 if kind[1] == "U" else 1
        wanted = file.tell() + prod(shape) * int(kind[2:]) * wide
        if path.stat().st_size < wanted:
            expected = wanted if is_count(wanted) else "far more"
            raise Unreadable(f"it has {path.stat().st_size} bytes instead of {expected}")
        return True


def _header(file: BinaryIO) -> dict[str, Any]:
    """Return the header of a ``.npy`` file. Raises Unreadable."""
    beginning = file.read(len(_MAGIC) + 2)
    if not beginning.startswith(_MAGIC) or len(beginning) < len(_MAGIC) + 2:
        raise Unreadable("it does not start with the header of an array")
    length = int.from_bytes(file.read(2 if beginning[-2] == 1 else 4), "little")
    if length > _LONGEST_HEADER:
        raise Unreadable("its header is too long")
    try:
        header = ast.literal_eval(file.read(length).decode("latin-1"))
        shape = header["shape"]
        is_shape = isinstance(shape, tuple) and len(shape) <= _MOST_DIMENSIONS and all(map(is_count, shape))
        if is_shape and "descr" in header:
            return cast("dict[str, Any]", header)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError) as error:
        raise Unreadable(f"its header cannot be read: {type(error).__name__}") from error
    raise Unreadable("its header has no shape and type")


_DATABASE_MAGIC = bytes.fromhex("0cdb3a2a")
_MOST_BYTES = 32 << 20  # size limit of a database's manifest, and of a file with metadata
_OF_ARRAYS = ("jax.Array", "np.ndarray")


def check_orbax_database(path: Path) -> None:
    """Check that the manifest of an OCDBT database is complete. Raises Unreadable, OSError."""
    data = whole(path, _MOST_BYTES)
    if data[:4] != _DATABASE_MAGIC or int.from_bytes(data[4:12], "little") != len(data):
        raise Unreadable("it is not a complete manifest of a database")
    if crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise Unreadable("it is damaged: its checksum is wrong")


def is_orbax_committed(path: Path) -> bool:
    """Return whether a step was committed, according to its metadata file. Raises Unreadable, OSError."""
    return json_object(path, _MOST_BYTES).get("commit_timestamp_nsecs", 0) is not None


def orbax_arrays(path: Path) -> Optional[list[str]]:
    """Return the names of the arrays in a tree's metadata file. Each array has its own directory next to this file.

    Returns None if the arrays are in a database, without directories of their own. Raises Unreadable, OSError.
    """
    tree = json_object(path, _MOST_BYTES)
    return None if tree.get("use_ocdbt", True) else [_name(entry) for entry in _array_entries(tree)]


def orbax_pieces(path: Path) -> int:
    """Return the number of files of an array, according to its metadata file, or 0 if the number is unknown.

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
