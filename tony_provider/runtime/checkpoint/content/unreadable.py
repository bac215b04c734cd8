"""Errors of the parsers of checkpoint files, and helpers for small files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.runtime.foreign_json import ForeignJsonError, read_json

HIGHEST = 2**62  # of a step; longer numbers are dates, hashes or random


class Unreadable(Exception):  # noqa: N818 - describes what was found
    """A file's content does not match its format. ``str()`` is the reason."""


class NotRead(OSError):  # noqa: N818 - describes what happened
    """No file could be read now, and the file is not the reason. Another attempt may succeed."""


def whole(path: Path, most_bytes: int) -> bytes:
    """Return the content of a small file. Raises Unreadable if it is larger, OSError."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise Unreadable(f"it has more than {most_bytes} bytes, the limit for such files")
    return data


def json_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """Return the object in a small JSON file. Raises Unreadable, OSError."""
    try:
        plain = read_json(whole(path, most_bytes))
    except ForeignJsonError as error:
        raise Unreadable(f"it cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise Unreadable("it is not a JSON object")
    return plain


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number that can be a step, a size or an offset."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < HIGHEST
