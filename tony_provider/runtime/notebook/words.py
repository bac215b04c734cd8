"""Numbers of files and bytes, and names, as the log and the notebook show them."""

from __future__ import annotations

from collections.abc import Sequence

from .work_files import WorkFile

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NAMED = 10  # files in a message


def count(files: Sequence[WorkFile]) -> str:
    """How many files, in words."""
    number = sum(1 for each in files if not each.is_directory)
    return f"{number} file{'' if number == 1 else 's'}"


def named(paths: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    shown = ", ".join(path.encode("utf-8", "replace").decode() for path in paths[:_NAMED])
    return shown + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")


def size(amount: float) -> str:
    """An amount of bytes, in words."""
    unit = 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"
