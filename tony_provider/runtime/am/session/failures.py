"""From what happened to a task to a Failure that people can act on."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime import shell
from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.task import ProcessEnd, Task
from tony_provider.runtime.protocol.status import Failure, FailureKind

_NOT_RUNNABLE = (shell.NOT_EXECUTABLE, shell.NOT_FOUND)


def of_process(task: Task, end: ProcessEnd, *, started: bool) -> Failure:
    """A user process ended badly, or could not be started."""
    return _failure(
        task,
        _process_kind(end, started),
        f"{_where(task)} {words.process_end(end)}",
        end.output_tail,
        exit_code=None if end.signal else end.exit_code,
        signal=end.signal or None,
    )


def of_early_end(task: Task) -> Failure:
    """A parameter server that ended by itself, though the others depend on it."""
    message = (
        f"{_where(task)} ended with exit code 0 while other tasks still needed it; a ps must run until it is stopped"
    )
    tail = task.end.output_tail if task.end else ""
    return _failure(task, FailureKind.USER, message, tail, exit_code=0)


def of_container(task: Task, exit_status: int, diagnostics: str) -> Failure:
    """A container ended under a task that had not said how it ended itself."""
    if exit_status in words.OUT_OF_MEMORY:
        kind = FailureKind.OUT_OF_MEMORY
    elif task.host:
        kind = FailureKind.CONTAINER_LOST
    else:
        kind = FailureKind.LAUNCH
    end = task.end
    said = end.output_tail if end and end.output_tail else diagnostics
    when = "" if task.host else " before its executor had registered"
    message = f"the container of {_where(task)} {words.container_end(exit_status)}{when}"
    return _failure(task, kind, message, said, exit_code=exit_status if exit_status >= 0 else None)


def of_launch(task: Task, reason: str) -> Failure:
    """The node refused to start the container."""
    return _failure(task, FailureKind.LAUNCH, f"{_where(task)} could not be started: {reason}", "")


def of_silence(task: Task, seconds: float) -> Failure:
    return _failure(
        task, FailureKind.CONTAINER_LOST, f"{_where(task)} was lost: nothing was heard of it for {seconds:.0f} s", ""
    )


def _process_kind(end: ProcessEnd, started: bool) -> FailureKind:
    if end.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if end.exit_code in _NOT_RUNNABLE or (end.error and not started):
        return FailureKind.LAUNCH
    if end.error and end.exit_code == 0 and not end.signal:
        return FailureKind.INTERNAL
    return FailureKind.CONTAINER_LOST if end.stopped else FailureKind.USER


def _where(task: Task) -> str:
    return f"{task.name} on {task.node}" if task.node else task.name


def _failure(
    task: Task,
    kind: FailureKind,
    message: str,
    tail: str,
    *,
    exit_code: Optional[int] = None,
    signal: Optional[int] = None,
) -> Failure:
    last = words.last_lines(tail)
    if last:
        message = f"{message}\n{last}"
    return Failure(kind, message, task.name, exit_code, signal)
