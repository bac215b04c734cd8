"""Variables of another system that programs read: those that a program names are set from ours, before it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tony_provider.importing.draft import Draft

_PROGRAMS = (".py", ".sh", ".bash")
_MOST_BYTES = 1 << 20  # of a program that is looked at
_MOST_FILES = 10_000  # of a directory


def carry_variables(draft: Draft, folder: Path, variables: Mapping[str, str], instead: Mapping[str, str]) -> None:
    """Have commands set the variables of another system that their programs read, and list those that nothing sets.

    A program is read if it is among the job's files and on this machine. ``variables``: their names -> our expressions.
    ``instead``: names of variables without an expression -> what the program has to do instead.
    """
    already = _given(draft.get("framework"))
    wanted = [name for name in (*variables, *instead) if name not in already]
    programs = list(_texts(draft, folder))
    if not programs:
        told = ", ".join(wanted)
        draft.leave(
            "variables", f"no program is there to be looked at; should it read one of {told}, the command has to set it"
        )
        return
    named = [name for name in wanted if any(_names(text, name) for text in programs)]
    for name in named:
        if name in instead:
            draft.leave(name, f"is read by the program, and nothing sets it: {instead[name]}")
    if found := [name for name in named if name in variables]:
        draft.exports = "export " + " ".join(f'{name}="{variables[name]}"' for name in found)
        draft.leave(", ".join(found), "are set by the command, since the program reads them; it can read ours instead")


def _given(framework: Any) -> set[str]:
    return {"RANK", "WORLD_SIZE"} if framework == "pytorch" else set()


def _names(text: str, name: str) -> bool:
    """As a variable: in quotes, or as a shell's."""
    return re.search(rf"[\"'${{]{name}\b", text) is not None


def _texts(draft: Draft, folder: Path) -> Iterator[str]:
    """Yield the texts of the job's programs that this machine has and can read."""
    for each in draft.files():
        for program in islice(_inside(folder / each.partition("::")[0]), _MOST_FILES):
            try:
                if program.suffix in _PROGRAMS and program.stat().st_size <= _MOST_BYTES:
                    yield program.read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):
                continue  # the file is missing or unreadable, is not a regular file, or has an impossible name


def _inside(path: Path) -> Iterator[Path]:
    try:
        yield from path.rglob("*") if path.is_dir() else [path]
    except (OSError, ValueError):
        return
