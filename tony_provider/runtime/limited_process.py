"""Processes of ours that read what others have made: started by one here, and held to limits by themselves."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from tony_provider.runtime.child_environment import absolute_entries, child_environment


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module in this process's interpreter, without looking for packages at its start."""
    return [sys.executable, "-S", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return the variables for such a process: its module search path, and no secret of this process."""
    return {**child_environment(), "PYTHONPATH": absolute_entries(os.pathsep.join(sys.path))}


def limit_memory(most: int) -> None:
    """Hold this process to so many bytes of addresses; where memory ends, it goes before all others."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_time(seconds: int) -> None:
    """Have this process ended by the system after so many seconds of processor time more."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))
