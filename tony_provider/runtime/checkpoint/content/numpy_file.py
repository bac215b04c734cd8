"""NumPy's files: ``.npz`` archives of ``numpy.savez``, and ``.npy`` arrays of ``numpy.save``."""

from __future__ import annotations

import ast
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Optional, cast
from zipfile import ZipFile

from tony_provider.runtime.checkpoint.content import zips
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 64 << 10  # bytes; NumPy itself accepts 10,000 unless it may trust the file
_STEPS = ("global_step", "step", "iteration", "iter", "epoch")  # arrays that hold one number
_MOST_DIMENSIONS = 64  # NumPy's own limit
_WIDTHS = ("1", "2", "4", "8")  # bytes of a whole number


def read_archive(path: Path) -> Optional[int]:
    """Read and check an archive. Return the step that it contains, or None. Raises Unreadable, OSError."""
    with zips.opened(path) as archive:
        zips.check(archive)
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


def check_array(path: Path) -> bool:
    """Check an array's size. Return False if its header does not determine the size. Raises Unreadable, OSError."""
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
    """Return the header of an array. Raises Unreadable."""
    beginning = file.read(len(_MAGIC) + 2)
    if not beginning.startswith(_MAGIC) or len(beginning) < len(_MAGIC) + 2:
        raise Unreadable("it does not begin like an array")
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
