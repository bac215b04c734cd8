"""Recognise failures whose cause is the node or the container, so that another node may succeed."""

from __future__ import annotations

import re
from typing import Optional

import attrs

from tony_provider.runtime import shell
from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import Failure, FailureKind

_PROBLEMS = tuple(
    (re.compile(text, re.IGNORECASE), problem)
    for text, problem in (
        (r"No space left on device|Disk quota exceeded", "a disk of its node is full"),
        (r"Read-only file system", "a disk of its node is read-only"),
        (r"Input/output error", "a disk of its node is broken"),
        (r"Address already in use|EADDRINUSE", "a port is taken on its node"),
    )
)
_GPU_PROBLEMS = tuple(
    (re.compile(text, re.IGNORECASE), problem)
    for text, problem in (
        (r"uncorrectable ECC|GPU is lost|GPU has fallen off the bus", "a GPU of its node is broken"),
        (r"no CUDA-capable device is detected|CUDA driver version is insufficient", "no GPU of its node can be used"),
    )
)
"""Messages of the C library, of CUDA and of NVIDIA's driver."""
_SHARED_LIBRARY = re.compile(r"error while loading shared libraries|cannot open shared object file")
_PROGRAMS = {shell.NOT_FOUND: "a program", shell.NOT_EXECUTABLE: "permission to execute a program"}


def of_text(text: str, *, gpus: bool = False) -> str:
    """Return what a node lacks according to an error message, or "". ``gpus``: whether the task has any."""
    table = (*_PROBLEMS, *_GPU_PROBLEMS) if gpus else _PROBLEMS
    return next((problem for pattern, problem in table if pattern.search(text)), "")


def peers(task: Task, state: SessionState) -> list[Task]:
    """Return the tasks of the same type on other nodes, which need the same programs and libraries."""
    return [each for each in state.tasks if each.type == task.type and each.node != task.node]


def suspected(task: Task, failure: Failure, state: SessionState) -> str:
    """Return what the task's node lacks, judging by the program's last words or by other nodes, or "".

    The program may be at fault all the same: a second such failure on another node shows that.
    """
    if failure.kind not in (FailureKind.USER, FailureKind.LAUNCH) or (task.process and task.process.end is None):
        return ""
    lacks = lacking(failure)
    if lacks is None:
        return of_text(words.last_error(failure.message.partition("\n")[2]), gpus=task.spec.gpus > 0)
    running = [peer for peer in peers(task, state) if peer.runs]
    if not running or (task.process and task.process.stepped):  # after a step, a process lacked nothing
        return ""
    return f"its node lacks {lacks} that {running[0].node} has"


def kind_of(problem: str) -> str:
    """Return the problem without the node that does not have it."""
    return problem.partition(" that ")[0]


def of_node(failure: Failure, problem: str) -> Failure:
    """Return the failure with kind NODE, and with the problem in the first line of its message."""
    first, newline, rest = failure.message.partition("\n")
    return attrs.evolve(failure, kind=FailureKind.NODE, message=f"{first}; {problem}{newline}{rest}")


def lacking(failure: Failure) -> Optional[str]:
    """Return what a program lacked, according to its failure: perhaps on this node only."""
    if failure.kind is FailureKind.LAUNCH and failure.exit_code in _PROGRAMS:
        return _PROGRAMS[failure.exit_code]
    if failure.kind is FailureKind.USER and _SHARED_LIBRARY.search(failure.message):
        return "a shared library"
    return None
