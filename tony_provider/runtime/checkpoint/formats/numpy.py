"""NumPy's checkpoints: ``.npz`` archives of ``numpy.savez`` and ``.npy`` arrays of ``numpy.save``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod
from pathlib import Path
from posixpath import basename, splitext
from typing import Any, BinaryIO, Optional, cast
from zipfile import ZipFile

from tony_provider.runtime.checkpoint.formats import zips
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, Unreadable, View
from tony_provider.runtime.checkpoint.formats.step_names import labelled_step, step_in
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.NUMPY
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 20  # bytes
_STEPS = ("global_step", "step", "iteration", "iter", "epoch")  # arrays that hold one number


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are NumPy's files."""
    for name in sorted(view.files):
        stem, suffix = splitext(basename(name))
        if suffix in (".npz", ".npy"):
            yield from _file(view, name, stem, is_archive=suffix == ".npz")


def _file(view: View, name: str, stem: str, *, is_archive: bool) -> Iterator[Finding]:
    path = view.path(name)
    said: Optional[int] = None
    try:
        if is_archive:
            said = view.remember("npz", (name,), lambda: _read_archive(path))
        elif not view.remember("npy", (name,), lambda: _check_array(path)) and not view.is_quiet([name]):
            yield Pending((name,))
            return
    except Unreadable as error:
        yield view.not_complete((name,), f"{name}: {error}")
    except FileNotFoundError:
        return
    else:
        found = (step for step in (labelled_step(stem), said, step_in(stem)) if step is not None)
        yield view.complete(next(found, None), KIND.value, name, [name])


def _read_archive(path: Path) -> Optional[int]:
    """Reads all of it; the step that it says. Raises Unreadable, OSError."""
    with zips.opened(path) as archive:
        zips.check(archive)
        members = set(archive.namelist())
        numbers = (_number(archive, f"{key}.npy") for key in _STEPS if f"{key}.npy" in members)
        return next((number for number in numbers if number is not None), None)


def _number(archive: ZipFile, member: str) -> Optional[int]:
    with archive.open(member) as opened:
        header = _header(cast(BinaryIO, opened))
        kind = header["descr"]
        if header["shape"] != () or not isinstance(kind, str) or kind[1:2] not in ("i", "u"):
            return None
        value = int.from_bytes(opened.read(int(kind[2:])), "big" if kind[0] == ">" else "little", signed=kind[1] == "i")
        return value if value >= 0 else None


def _check_array(path: Path) -> bool:
    """Whether it is as long as it says; False: that it does not say. Raises Unreadable, OSError."""
    with path.open("rb") as file:
        header = _header(file)
        kind, shape = header["descr"], header["shape"]
        if not isinstance(kind, str) or not kind[2:].isdigit() or kind[1:2] == "O":
            return False
        wide = 4 if kind[1] == "U" else 1
        wanted = file.tell() + prod(shape) * int(kind[2:]) * wide
        if path.stat().st_size < wanted:
            raise Unreadable(f"it has {path.stat().st_size} bytes instead of {wanted}")
        return True


def _header(file: BinaryIO) -> dict[str, Any]:
    """Raises Unreadable."""
    beginning = file.read(len(_MAGIC) + 2)
    if not beginning.startswith(_MAGIC) or len(beginning) < len(_MAGIC) + 2:
        raise Unreadable("it does not begin as an array")
    length = int.from_bytes(file.read(2 if beginning[-2] == 1 else 4), "little")
    if length > _LONGEST_HEADER:
        raise Unreadable("its header is too long")
    try:
        header = ast.literal_eval(file.read(length).decode("latin-1"))
        shape = header["shape"]
        if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape) and "descr" in header:
            return cast("dict[str, Any]", header)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError) as error:
        raise Unreadable(f"its header cannot be read: {error!r}") from error
    raise Unreadable("its header says no shape and type")
