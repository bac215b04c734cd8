"""One line about what the job does or waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from tony_provider.runtime.am.session.restarts.restart_groups import Restart
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.quantities import count, some, span
from tony_provider.runtime.text import first_line


def message(session: Session, now: float) -> str:
    if session.publishing:
        return f"the tasks have succeeded; publishing {some(session.state.job.outputs)}"
    if session.verdict:
        return first_line(session.verdict.message)
    if session.suspension.reason is not None and session.phase not in (JobState.RECOVERING, JobState.FINISHING):
        return _suspended(session, first_line(session.suspension.reason))
    if session.phase is JobState.WAITING:
        return session.containers.gang.describe(now)
    if session.phase is JobState.STARTING:
        return _starting(session, now)
    if session.phase is JobState.RECOVERING:
        waiting = count(session.recovery.waiting_for, "executor")
        return f"a new application master took over; waiting for {waiting} to come back"
    if session.phase is JobState.RESTARTING:
        restart = session.groups.gang.restart
        return f"starting again: {_waiting_for(restart, now)}; {restart.reason}" if restart else "starting again"
    if session.phase is JobState.FINISHING:
        evaluators = some(task.name for task in session.tasks if not task.told_to_stop and not task.ended)
        return f"training has succeeded, waiting for {evaluators}"
    further = (
        *session.resizing.describe(),
        *session.spare_room.describe(),
        *session.stages.describe(),
        *_single_restarts(session, now),
    )
    return "; ".join([_running(session), *further])


def _suspended(session: Session, reason: str) -> str:
    if session.phase is JobState.SUSPENDED:
        return f"suspended: {reason}; `airflow tony resume` has it go on"
    if session.suspension.waits_for_checkpoint:
        return f"to be suspended, once there is a checkpoint: {reason}"
    busy = [task for task in session.tasks if task.busy]
    return f"to be suspended: {_stopping(busy) or 'its containers are given back'}; {reason}"


def _starting(session: Session, now: float) -> str:
    tasks = session.containers.gang.wanted
    missing = [task for task in tasks if task.state is TaskState.STARTING]
    if missing and not any(task.state is TaskState.REQUESTED for task in tasks):
        total = count(len(tasks), "executor")
        return f"{len(tasks) - len(missing)} of {total} registered, waiting for {_names(missing)}"
    restart = session.groups.gang.restart
    return _waiting_for(restart, now) if restart else "starting"


def _running(session: Session) -> str:
    tasks = [task for task in session.tasks if not task.vacant]
    running = sum(1 for task in tasks if task.state is TaskState.RUNNING)
    said = [f"{running} of {count(len(tasks), 'task')} running", *_others(session)]
    absent = [task for task in tasks if task.absent and task.type not in session.resizing.wanted]
    if absent:
        said.append(f"going on without {_names(absent)}")
    return ", ".join(said)


def _others(session: Session) -> Iterator[str]:
    """Tasks that are over, and those that have not begun."""
    succeeded = sum(1 for task in session.tasks if task.state is TaskState.SUCCEEDED)
    failed = sum(1 for task in session.tasks if task.given_up)
    waiting = sum(1 for task in session.tasks if task.key is not None and not task.has_begun)
    if succeeded:
        yield f"{succeeded} succeeded"
    if failed:
        yield f"{failed} failed"
    if waiting:
        yield f"{waiting} waiting for a container"


def _single_restarts(session: Session, now: float) -> Iterator[str]:
    for group in session.groups.every:
        begins = not any(task.has_begun for task in group.members)
        if group.restart and group is not session.groups.gang and not begins:
            yield f"{group.name} starts again: {_waiting_for(group.restart, now)}"


def _waiting_for(restart: Restart, now: float) -> str:
    tasks = [task for task in restart.members if not task.absent and not task.over]
    stopping = _stopping([task for task in tasks if task.busy])
    if stopping:
        return stopping
    requested = [task for task in tasks if task.state is TaskState.REQUESTED]
    if requested:
        return f"waiting for a new container for {_names(requested)}"
    missing = [task for task in tasks if not task.ready]
    if missing:
        return f"waiting for {_names(missing)} to register"
    return _wait(restart.not_before, now) or "choosing the checkpoint to go on from"


def _stopping(busy: Sequence[Task]) -> str:
    """What something is still to come of; empty: of nobody."""
    running = [task for task in busy if task.process and task.process.runs]
    if running:
        return f"stopping {_names(running)}"
    return f"copying the last checkpoint of {_names(busy)}" if busy else ""


def _wait(not_before: Optional[float], now: float) -> str:
    if not_before is None:
        return "waiting for the cluster's word on the cause"
    return f"in {span(not_before - now)}" if not_before > now else ""


def _names(tasks: Sequence[Task]) -> str:
    return some(task.name for task in tasks)
