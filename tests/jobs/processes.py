"""The processes of an application, whoever started them: known by their environment, words, folder or parents."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Seen:
    """One process as it was when looked at."""

    pid: int
    parent: int
    program: str  # the file that it runs; empty for what is not ours to look at
    words: str  # its command line
    environment: bytes = field(repr=False)
    folder: str

    def holds(self, needle: str) -> bool:
        """Whether it can be seen in the process from outside."""
        return needle in self.words or needle.encode() in self.environment


def every_process() -> dict[int, Seen]:
    found = (_look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def processes_of(application_id: str) -> list[Seen]:
    """Live processes of an application, its master's and its tasks', and all that they started."""
    # Its containers are called container_<number>_…, or container_e<epoch>_<number>_…
    number = application_id.removeprefix("application")
    everyone = every_process()
    marked = {pid for pid, process in everyone.items() if process.holds(number) or number in process.folder} - {
        os.getpid()
    }
    return [process for pid, process in everyone.items() if pid in marked or _below(pid, marked, everyone)]


def below(pid: int, everyone: dict[int, Seen]) -> set[int]:
    """What a process has started, and what that has."""
    return {each for each in everyone if _below(each, {pid}, everyone)}


def _below(pid: int, roots: set[int], everyone: dict[int, Seen]) -> bool:
    seen = set()
    while pid in everyone and pid not in seen:
        seen.add(pid)
        pid = everyone[pid].parent
        if pid in roots:
            return True
    return False


def _look(pid: int) -> Seen | None:
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        return Seen(
            pid=pid,
            parent=int(fields[1]),
            program=(process / "exe").readlink().name,
            words=(process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip(),
            environment=(process / "environ").read_bytes(),
            folder=str((process / "cwd").readlink()),
        )
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # ended meanwhile, or the kernel's
