"""What a process takes, from its start to its end."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import attrs

from benchmarks.report import Figure


@attrs.frozen
class Cost:
    """Of one process, or of what one has done."""

    seconds: float
    processor: float  # seconds of one
    memory: float  # MiB; of a process the most that was resident


def figures(what: str, who: str, costs: Sequence[Cost]) -> Iterator[Figure]:
    yield Figure(f"{what}: wall", who, "s", [cost.seconds for cost in costs])
    yield Figure(f"{what}: processor", who, "s", [cost.processor for cost in costs])
    yield Figure(f"{what}: memory", who, "MiB", [cost.memory for cost in costs])


def run(command: Sequence[str], env: dict[str, str]) -> Cost:
    """Of a process that must end well. Raises RuntimeError with what it said where it does not."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {process.returncode}\n{output.read().decode()[-3000:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
