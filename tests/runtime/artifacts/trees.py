"""Directory trees: random ones for hypothesis, and what a tree holds."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from hypothesis import strategies as st

NAMES = ("a", "b", "step-1", "last.pt", "ü 1:2%.bin")

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
contents = st.binary(max_size=40) | st.integers(1, 3).map(lambda count: bytes([count]) * (count * 100_000))


def snapshot(directory: Path) -> dict[str, object]:
    """Everything that a restore must bring back, except times: bytes, links, empty directories, permissions."""
    found: dict[str, object] = {}
    for path in directory.rglob("*"):
        name, mode = path.relative_to(directory).as_posix(), stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("directory", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


def times(directory: Path) -> dict[str, int]:
    """The modification times of all files, in nanoseconds since the epoch."""
    return {
        path.relative_to(directory).as_posix(): path.lstat().st_mtime_ns
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def write(directory: Path, path: str, content: bytes, when: int) -> None:
    """Write a file, whatever lies in its way."""
    clear_way(directory, path)
    (directory / path).write_bytes(content)
    os.utime(directory / path, ns=(when, when))


def clear_way(directory: Path, path: str) -> None:
    """Make the directories of a path, in place of files and links; nothing lies at the path itself afterwards."""
    place = directory
    for part in path.split("/")[:-1]:
        place /= part
        if place.is_symlink() or place.is_file():
            place.unlink()
        place.mkdir(exist_ok=True)
    target = directory / path
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)
