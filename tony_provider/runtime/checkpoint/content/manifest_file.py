"""The manifest that a program writes for a save of any format; see ``saves.manifests``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable, is_count, json_object

_MOST_BYTES = 64 << 20

File = tuple[str, int, Optional[str]]  # path below the manifest's directory, size in bytes, checksum
Manifest = tuple[int, str, list[File]]  # step, entry, files


def read(path: Path) -> Manifest:
    """Return the content of a manifest. Raises Unreadable, OSError."""
    plain = json_object(path, _MOST_BYTES)
    try:
        step, entry, listed = plain["step"], plain["entry"], plain["files"]
        files = [(each["path"], each["size"], each.get("checksum")) for each in listed]
    except (TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"it is not a manifest of a checkpoint ({error!r})") from error
    if not is_count(step):
        raise Unreadable("its step is not a whole number from 0 on")
    if not files:
        raise Unreadable("it names no files")
    return int(step), _inside(entry), [_file(*each) for each in files]


def _file(path: Any, size: Any, sum_: Any) -> File:
    if not is_count(size):
        raise Unreadable("the size of a file in it is not a number")
    if sum_ is not None and not isinstance(sum_, str):
        raise Unreadable("the checksum of a file in it is not text")
    return _inside(path), int(size), sum_


def _inside(path: Any) -> str:
    if not isinstance(path, str) or not is_inside(path):
        raise Unreadable(f"{str(path)[:200]!r} is not a path below the directory")
    return path


def is_inside(path: str) -> bool:
    """Return whether a normalized path with slashes stays below the directory to which it is appended."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
