"""What a process takes, from its start to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from benchmarks.report import Figure

_RUSAGE = Path(__file__).with_name("rusage.py")


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
    measured = [sys.executable, "-I", str(_RUSAGE), *command]
    done = subprocess.run(measured, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-3000:]}")
    return Cost(**json.loads(done.stdout))
