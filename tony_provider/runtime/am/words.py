"""Plain words for sizes, exit codes, signals and YARN's own reasons, for messages."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from typing import Optional

from tony_provider.runtime import shell
from tony_provider.runtime.am.session.state.process_state import ProcessEnd
from tony_provider.runtime.spec.model import TaskSpec

# org.apache.hadoop.yarn.api.records.ContainerExitStatus
INVALID = -1000
ABORTED = -100
DISKS_FAILED = -101
PREEMPTED = -102
EXCEEDED_VIRTUAL_MEMORY = -103
EXCEEDED_PHYSICAL_MEMORY = -104
KILLED_BY_APPLICATION_MASTER = -105
KILLED_BY_RESOURCE_MANAGER = -106
KILLED_AFTER_APPLICATION = -107
KILLED_BY_SCHEDULER = -108
EXCESS_LOGS = -109

_CONTAINER = {
    INVALID: "could not be prepared on its node",
    ABORTED: "was lost: its node or NodeManager went away, or the cluster took it back",
    DISKS_FAILED: "was lost: too many disks of its node failed",
    PREEMPTED: "was preempted: the cluster gave its share to another queue or application",
    EXCEEDED_VIRTUAL_MEMORY: "used more virtual memory than it was given, so YARN killed it",
    EXCEEDED_PHYSICAL_MEMORY: "used more memory than it was given, so YARN killed it; raise the task type's memory",
    KILLED_BY_APPLICATION_MASTER: "was stopped by the application master",
    KILLED_BY_RESOURCE_MANAGER: "was killed by the ResourceManager",
    KILLED_AFTER_APPLICATION: "was killed because its application had ended",
    KILLED_BY_SCHEDULER: "was killed by its NodeManager to make room",
    EXCESS_LOGS: "wrote more logs than the cluster allows, so YARN killed it",
}
_SHELL = {shell.NOT_EXECUTABLE: " (the command cannot be executed)", shell.NOT_FOUND: " (command not found)"}
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*")
OUT_OF_MEMORY = frozenset({EXCEEDED_VIRTUAL_MEMORY, EXCEEDED_PHYSICAL_MEMORY})
TAKEN_BACK = frozenset({PREEMPTED, KILLED_BY_SCHEDULER})
"""The cluster needed the room for others."""
NODE_TROUBLE = frozenset({ABORTED, DISKS_FAILED, PREEMPTED, KILLED_BY_RESOURCE_MANAGER, KILLED_BY_SCHEDULER})
"""Reasons that have nothing to do with the job: the same again may well succeed elsewhere."""


def signal_name(number: int) -> str:
    """The name of a signal, such as ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exit_code(code: int) -> str:
    killer = shell.killed_by(code)
    if killer:
        return f"ended with exit code {code} (killed by {signal_name(killer)})"
    return f"ended with exit code {code}{_SHELL.get(code, '')}"


def process_end(end: ProcessEnd) -> str:
    """What became of a user process, to follow the task's name."""
    killed = f"was killed by {signal_name(end.signal)}" if end.signal else _exit_code(end.exit_code)
    if end.out_of_memory:
        return f"ran out of memory and {killed}; raise the task type's memory"
    if end.error and end.exit_code == 0 and not end.signal:
        return end.error
    return f"{killed}; {end.error}" if end.error else killed


def container_end(exit_status: int) -> str:
    """What became of a container, to follow the words "its container"."""
    return _CONTAINER.get(exit_status) or _exit_code(exit_status)


def size(task: TaskSpec, node_label: Optional[str] = None) -> str:
    """The size of a task's container in words, such as ``8192 MiB, 1 vcore, gpus 1``."""
    parts = [f"{task.memory} MiB", count(task.vcores, "vcore")]
    if task.gpus:
        parts.append(f"gpus {task.gpus}")
    parts += [f"{name} {value}" for name, value in sorted(task.resources.items())]
    label = task.node_label or node_label
    return ", ".join([*parts, f"node label {label}"] if label else parts)


def count(number: int, noun: str) -> str:
    """A number of things in words: ``1 container``, ``3 containers``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Iterable[str], most: int = 5) -> str:
    """A list for people: the first few names, and how many more there are."""
    every = list(names)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def first_line(text: str) -> str:
    """The text up to its first line's end."""
    return text.partition("\n")[0]


def without_frames(text: str) -> str:
    """What a Java program says of an exception, without where in its code it was."""
    return "\n".join(line for line in text.splitlines() if not _FRAME.fullmatch(line))


def last_lines(text: str, *, lines: int = 30, size: int = 4096) -> str:
    """The end of a text, whole lines where they fit; ``size`` in characters."""
    kept = text.rstrip().splitlines()[-lines:]
    while len(kept) > 1 and sum(len(line) + 1 for line in kept) > size:
        kept.pop(0)
    return "\n".join(kept)[-size:]
