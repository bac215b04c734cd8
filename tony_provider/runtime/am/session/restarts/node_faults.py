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
        (r"uncorrectable ECC|GPU is lost|GPU has fallen off the bus", "a GPU of its node is broken"),
        (r"no CUDA-capable device is detected|CUDA driver version is insufficient", "no GPU of its node can be used"),
    )
)
"""Messages of the C library, of CUDA and of NVIDIA's driver."""
_SHARED_LIBRARY = re.compile(r"error while loading shared libraries|cannot open shared object file")
_PROGRAMS = {shell.NOT_FOUND: "a program", shell.NOT_EXECUTABLE: "permission to execute a program"}


def of_output(output: str) -> str:
    """Return what a program's last traceback, or its last lines, say that its node lacks, or ""."""
    said = words.last_traceback(output)
    return next((problem for text, problem in _PROBLEMS if text.search(said)), "")


def peers(task: Task, state: SessionState) -> list[Task]:
    """Return the tasks of the same type on other nodes, which need the same programs and libraries."""
    return [each for each in state.tasks if each.type == task.type and each.node != task.node]


def compare(task: Task, failure: Failure, state: SessionState) -> Failure:
    """Return the failure, or a NODE failure if only this task's node lacks a program or a library.

    Peers that still run show that. A process that has reported a step lacked nothing.
    """
    lacks = lacking(failure)
    running = [peer for peer in peers(task, state) if peer.runs]
    if lacks is None or not running or (task.process and task.process.stepped):
        return failure
    first, newline, rest = failure.message.partition("\n")
    message = f"{first}; its node lacks {lacks} that {running[0].node} has{newline}{rest}"
    return attrs.evolve(failure, kind=FailureKind.NODE, message=message)


def lacking(failure: Failure) -> Optional[str]:
    """Return what a program lacked, according to its failure: perhaps on this node only."""
    if failure.kind is FailureKind.LAUNCH and failure.exit_code in _PROGRAMS:
        return _PROGRAMS[failure.exit_code]
    if failure.kind is FailureKind.USER and _SHARED_LIBRARY.search(failure.message):
        return "a shared library"
    return None
