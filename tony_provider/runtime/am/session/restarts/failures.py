"""Create failures with messages that users can act on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import attrs

from tony_provider.runtime import shell
from tony_provider.runtime.am import words
from tony_provider.runtime.am.hints import hint
from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.am.session.restarts import node_faults
from tony_provider.runtime.am.session.state.process_state import ProcessEnd
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.runtime.quantities import some

NOT_RUNNABLE = (shell.NOT_EXECUTABLE, shell.NOT_FOUND)
KILL_SIGNALS = (9, 15)
"""SIGKILL and SIGTERM, which other programs send."""
_OUT_OF_MEMORY = (ExitReason.EXCEEDED_MEMORY, ExitReason.EXCEEDED_VIRTUAL_MEMORY)
_TAKEN_BACK = (ExitReason.PREEMPTED, ExitReason.MADE_ROOM)
"""The cluster needed the resources for other applications."""


def of_process(task: Task, end: ProcessEnd, *, started: bool) -> Failure:
    """Return the failure of a user process that failed or could not be started."""
    what = f"{_where(task)}{':' if end.process else ''} {end.in_words}"
    known = end.node_problem or hint(end.output_tail)
    return _failure(
        task,
        _process_kind(end, started),
        f"{what}; {known}" if known else what,
        end.output_tail,
        exit_code=None if end.signal else end.exit_code,
        signal=end.signal or None,
    )


def of_early_end(task: Task, others: Sequence[Task], seconds: float) -> Failure:
    """Return the failure of a parameter server that ended by itself ``seconds`` ago, before ``others`` succeeded."""
    message = (
        f"{_where(task)} ended with exit code 0, and {some(other.name for other in others)} had not succeeded "
        f"{seconds:.0f} s later; a ps must run until it is stopped, and is not started again"
    )
    end = task.process.end if task.process else None
    return _failure(task, FailureKind.USER, message, end.output_tail if end else "", exit_code=0)


def of_container(task: Task, exit: ContainerExit, diagnostics: str) -> Failure:
    """Return the failure of a task whose container ended before the executor reported the end of the task."""
    end = task.process.end if task.process else None
    output = (end.output_tail if end else "") or task.last_words or diagnostics
    when = "" if task.host else " before its executor had registered"
    message = f"the container of {_where(task)} {words.container_exit(exit)}{when}"
    return _failure(task, _container_kind(task, exit.reason), message, output, exit_code=exit.exit_code)


def of_launch(task: Task, reason: str) -> Failure:
    """Return the failure of a task whose container a node refused to start."""
    return _failure(task, FailureKind.LAUNCH, f"{_where(task)} could not be started: {reason}")


def of_registration(tasks: Sequence[Task], seconds: float) -> Failure:
    """Return the failure of tasks whose executors did not register in time."""
    message = (
        f"not registered within {seconds:g} s (timeouts.registration): "
        f"{some(_where(task) for task in tasks)}. "
        "The node may be slow to copy files, or may not reach the application master; the container's log says more"
    )
    return _failure(tasks[0], FailureKind.REGISTRATION_TIMEOUT, message)


def of_silence(task: Task, seconds: float) -> Failure:
    """Return the failure of a task whose executor has sent nothing for ``seconds``."""
    kind = FailureKind.PREEMPTED if task.yields else FailureKind.CONTAINER_LOST
    return _failure(task, kind, f"{_where(task)} was lost: nothing was heard of it for {seconds:.0f} s")


def of_stop(task: Task) -> Failure:
    """Return the failure of a task whose executor does not stop its user process on request."""
    return _failure(task, FailureKind.CONTAINER_LOST, f"{_where(task)} did not stop its user process in time")


def of_stall(task: Task, seconds: float) -> Failure:
    """Return the failure of a task whose user process has reported no step for ``seconds``."""
    step = task.process.step if task.process else None
    last = "reported no step" if step is None else f"reported no step after step {step}"
    message = f"{_where(task)} {last} for {seconds:g} s (timeouts.stall); its log has the stacks of its threads"
    return _failure(task, FailureKind.STALLED, message)


def of_restore(task: Task, resume: Optional[ResumePoint], reason: str) -> Failure:
    """Return the failure of a task whose directory could not be prepared. ``resume``: None without a checkpoint."""
    is_nodes = bool(node_faults.of_text(reason))
    if resume is None:
        kind = FailureKind.NODE if is_nodes else FailureKind.LAUNCH
        return _failure(task, kind, f"{_where(task)} could not prepare for its user process: {reason}")
    message = f"{_where(task)} could not restore {resume.label}: {reason}"
    return _failure(task, FailureKind.NODE if is_nodes else FailureKind.CHECKPOINT, message)


def of_upload(task: Task, end: ProcessEnd) -> Failure:
    """Return the failure of a task whose user process succeeded, but whose files could not be stored."""
    return _failure(task, FailureKind.UPLOAD, f"{_where(task)} has ended well, but {end.not_kept}", "", exit_code=0)


def of_absence(task: Task) -> Failure:
    """Return the failure of a lost task that ran under a former application master."""
    message = f"{task.name} was lost while no application master was there: its executor did not come back"
    return _failure(task, FailureKind.CONTAINER_LOST, message)


def given_up(failure: Failure, why: str, *, permanent: bool = False) -> Failure:
    """Return the failure with the reason for giving up appended to its first line."""
    first, newline, rest = failure.message.partition("\n")
    message = f"{first}; {why}{newline}{rest}" if why else failure.message
    return attrs.evolve(failure, message=message, permanent=permanent)


def _container_kind(task: Task, reason: ExitReason) -> FailureKind:
    if reason in _OUT_OF_MEMORY:
        return FailureKind.OUT_OF_MEMORY
    if task.yields or reason in _TAKEN_BACK:
        return FailureKind.PREEMPTED
    return FailureKind.CONTAINER_LOST if task.host else FailureKind.LAUNCH


def _process_kind(end: ProcessEnd, started: bool) -> FailureKind:
    if end.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if end.node_problem and not end.stopped:
        return FailureKind.NODE
    if end.exit_code in NOT_RUNNABLE or (end.error and not started):
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
    tail: str = "",
    *,
    exit_code: Optional[int] = None,
    signal: Optional[int] = None,
) -> Failure:
    last = words.last_lines(tail)
    if last:
        message = f"{message}\n{last}"
    return Failure(kind, message, task.name, exit_code, signal)
