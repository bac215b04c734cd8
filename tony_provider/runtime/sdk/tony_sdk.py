"""Optional helper for code that trains in a tony job; put ``import tony_sdk`` into your script.

    import tony_sdk

    for step in range(total):
        ...
        tony_sdk.report(step, total, loss=loss)
    model.save(os.path.join(tony_sdk.model_dir() or "out", "model.keras"))

Needs nothing but Python 3.8. Outside a job it does nothing and raises nothing, so the same script runs on a laptop.
All of it is a thin cover over the TONY_* variables, which code in any language can use instead.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from typing import Any, Optional

_lock = threading.Lock()


@dataclass(frozen=True)
class Task:
    """Which task of the job this process is."""

    type: str  # chief, worker, ps, evaluator, …
    index: int  # among the tasks of its type, from 0
    rank: Optional[int]  # over the whole cluster, chief first, then workers; None for evaluators and side-cars
    world_size: int  # how many tasks have a rank


def task() -> Optional[Task]:
    """None outside a job."""
    index, world_size = _number("TONY_TASK_INDEX"), _number("TONY_WORLD_SIZE")
    task_type = os.environ.get("TONY_TASK_TYPE")
    if not task_type or index is None or world_size is None:
        return None
    return Task(task_type, index, _number("TONY_RANK"), world_size)


def model_dir() -> Optional[str]:
    """A local directory: what the chief, or else the first worker, leaves here becomes the job's model.

    The other tasks have one, too, which is thrown away. None outside a job.
    """
    return os.environ.get("TONY_MODEL_DIR") or None


def checkpoint_dir() -> Optional[str]:
    """The directory for this training's checkpoints. None outside a job."""
    return os.environ.get("TONY_CHECKPOINT_DIR") or None


def report(step: int, total_steps: Optional[int] = None, **metrics: Any) -> bool:
    """Tell the job how far this task is; the newest counts. ``metrics`` are numbers, or arrays of one number.

    Costs microseconds, but need not be called more than about once a second. Returns whether it was written: not
    outside a job, and not when the disk is full. Values that are no numbers are left out.
    """
    path = os.environ.get("TONY_METRICS_FILE")
    if not path:
        return False
    try:
        line = {name: number for name, number in ((n, _plain(v)) for n, v in metrics.items()) if number is not None}
        line["step"] = int(step)
        if total_steps is not None:
            line["total_steps"] = int(total_steps)
        data = (json.dumps(line) + "\n").encode()
        # One write in append mode: lines of several threads or processes do not mix.
        with _lock:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
    except (OSError, TypeError, ValueError, OverflowError):
        return False  # a report is never worth a training
    return True


def _number(variable: str) -> Optional[int]:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None


def _plain(value: Any) -> Optional[float]:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
