"""Job status for users and the Airflow side, made from the session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.restart_policy import Restart
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_state import SessionState, Task
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.quantities import count, some, span
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.protocol.metrics import IN_STATUS
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskState, TaskStatus

_NAMED = 3  # limit of the tasks that a warning names
_VALUES = tuple(metric.name for metric in IN_STATUS)
_UNHEEDED = 300.0  # seconds after which an open request for an export becomes a warning


def job_status(
    session: Session, *, application_id: str, am_attempt: int, started_ms: int, now: float, now_ms: int
) -> JobStatus:
    """Return the present status of the job.

    ``now`` is the time on the session's clock, and ``now_ms`` is the same moment in epoch milliseconds.
    """
    leader = session.state.leader
    verdict, state = session.verdict, session.state
    return JobStatus(
        application_id=application_id,
        name=state.job.name,
        state=session.phase,
        message=message(session, now),
        am_attempt=am_attempt,
        generation=session.generation,
        started_ms=started_ms,
        updated_ms=now_ms,
        finished_ms=now_ms if session.finished else None,
        progress=fraction_done(session),
        tasks=[_task_status(task, now, now_ms) for task in session.tasks],
        leader=leader.name if leader else None,
        model_dir=_model_dir(leader),
        resumed=state.generation.resume,
        checkpoint=state.checkpoint,
        export=state.export,
        export_request=state.export_request,
        restarts=state.restarts,
        restarted_after=state.restarted_after,
        resizing=session.sizes.requested,
        failure=verdict.failure if verdict else None,
        times=session.times.figures(now),
        use=session.use.figures(),
        parameters=_parameters(session),
        warnings=[*state.warnings, *_losses(session), *_notices(session), *_exports(state, now_ms)],
    )


def _parameters(session: Session) -> dict[str, str]:
    """Return the parameters of the leader, otherwise those of the first task that has logged any."""
    leader_first = sorted(session.tasks, key=lambda task: task is not session.state.leader)
    return next((task.parameters for task in leader_first if task.parameters), {})


def _losses(session: Session) -> Iterator[str]:
    """Yield warnings about files that cannot be stored now or soon, or that a task's newest process left unstored."""
    if session.state.quota_warning:
        yield session.state.quota_warning
    for task in session.tasks:
        not_copied = task.process.not_copied if task.process else ""
        if not_copied:
            files = f" ({count(task.unstored, 'file')})" if task.unstored else ""
            yield f"the newest checkpoint of {task.name}{files} is not on the store: {not_copied}"
        elif task.upload_problem and not task.ended:
            yield f"{task.name}: {task.upload_problem}"


def _notices(session: Session) -> Iterator[str]:
    """Yield notices about files that are not stored. Tasks with the same notice share a line."""
    if session.state.checkpoint_problem:
        yield session.state.checkpoint_problem
    tasks: dict[str, list[str]] = {}
    for task in session.tasks:
        for notice in task.notices:
            tasks.setdefault(notice, []).append(task.name)
    for notice, names in tasks.items():
        yield f"{some(names, _NAMED)}: {notice}"


def _exports(state: SessionState, now_ms: int) -> Iterator[str]:
    """Yield warnings about failed exports and unanswered requests for an export."""
    request = state.export_request
    if state.export_problem:
        yield state.export_problem
    elif request and now_ms - request.since_ms >= _UNHEEDED * 1000:
        asked = clock.time_of_day(request.since_ms)
        yield (
            f"an export of the model was requested at {asked}, but none arrived: the program must check for requests "
            "(tony_sdk.export_requested, TONY_EXPORT_REQUEST)"
        )


def final_status(status: JobStatus, verdict: Verdict) -> JobStatus:
    """Return the job's final status with this verdict, whatever the state of its session is."""
    return attrs.evolve(
        status,
        state=JobState(verdict.status.value),
        message=first_line(verdict.message),
        failure=verdict.failure,
        troubles=[],
        finished_ms=status.finished_ms or status.updated_ms,
    )


def fraction_done(session: Session) -> float:
    """Return the finished fraction of the job, from 0 to 1, by the leader's steps."""
    if session.phase is JobState.SUCCEEDED:
        return 1.0
    leader = session.state.leader
    progress = leader.progress if leader else None
    if progress is None or not progress.total_steps:
        return 0.0
    return min(1.0, progress.step / progress.total_steps)


def _model_dir(leader: Optional[Task]) -> Optional[str]:
    """Return the URI of the leader's model, or None until it is on the store."""
    end = leader.end if leader else None
    return end.model_dir or None if end else None


def _task_status(task: Task, now: float, now_ms: int) -> TaskStatus:
    end = task.end
    measured = task.values if task.has_container else {}
    values: dict[str, Any] = {name: measured.get(name) for name in _VALUES}
    return TaskStatus(
        **values,
        type=task.type,
        index=task.index,
        state=task.state,
        attempt=task.attempt,
        start=task.start,
        container_id=task.container.id if task.container else None,
        node=task.node,
        heartbeat_ms=None if task.heard_at is None else now_ms - int((now - task.heard_at) * 1000),
        progress=task.progress,
        exit_code=end.exit_code if end and not end.signal else None,
        signal=end.signal if end and end.signal else None,
        activity=task.activity,
        further=task.further,
        unstored=task.unstored,
    )


def message(session: Session, now: float) -> str:
    if session.completion.publishing:
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
        return f"a new application master took over; waiting for {waiting} to reconnect"
    if session.phase is JobState.RESTARTING:
        restart = session.groups.gang.restart
        return f"restarting: {_waiting_for(restart, now)}; {restart.reason}" if restart else "restarting"
    if session.phase is JobState.FINISHING:
        evaluators = some(task.name for task in session.tasks if not task.ending and not task.ended)
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
        return f"{reason}; `airflow tony resume` resumes the job"
    if session.suspension.waits_for_checkpoint:
        return f"suspending after the next checkpoint: {reason}"
    busy = [task for task in session.tasks if task.busy]
    return f"suspending: {_stopping(busy) or 'releasing the containers'}; {reason}"


def _starting(session: Session, now: float) -> str:
    tasks = session.containers.gang.wanted
    missing = [task for task in tasks if task.state is TaskState.STARTING]
    if missing and not any(task.state is TaskState.REQUESTED for task in tasks):
        total = count(len(tasks), "executor")
        return f"{len(tasks) - len(missing)} of {total} registered, waiting for {_names(missing)}"
    restart = session.groups.gang.restart
    return _waiting_for(restart, now) if restart else "starting"


def _running(session: Session) -> str:
    tasks = [task for task in session.tasks if not task.unrequested]
    running = sum(1 for task in tasks if task.state is TaskState.RUNNING)
    said = [f"{running} of {count(len(tasks), 'task')} running", *_others(session)]
    left_out = [task for task in tasks if task.left_out and task.type not in session.sizes.requested]
    if left_out:
        said.append(f"continuing without {_names(left_out)}")
    return ", ".join(said)


def _others(session: Session) -> Iterator[str]:
    """Yield the numbers of tasks that are over, and of tasks that have not begun."""
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
        if group.restart and not group.is_gang and not begins:
            yield f"{group.name} restarts: {_waiting_for(group.restart, now)}"


def _waiting_for(restart: Restart, now: float) -> str:
    tasks = [task for task in restart.members if not task.left_out and not task.done]
    if stopping := _stopping([task for task in tasks if task.busy]):
        return stopping
    if requested := [task for task in tasks if task.state is TaskState.REQUESTED]:
        return f"waiting for a new container for {_names(requested)}"
    if missing := [task for task in tasks if not task.ready]:
        return f"waiting for {_names(missing)} to register"
    return _wait(restart.not_before, now) or "choosing the checkpoint to resume from"


def _stopping(busy: Sequence[Task]) -> str:
    """Return which of these tasks are stopping or copying checkpoints, or "" if there are none."""
    if running := [task for task in busy if task.process and task.process.runs]:
        return f"stopping {_names(running)}"
    return f"copying the last checkpoint of {_names(busy)}" if busy else ""


def _wait(not_before: Optional[float], now: float) -> str:
    if not_before is None:
        return "waiting for the cluster to report the cause"
    return f"in {span(not_before - now)}" if not_before > now else ""


def _names(tasks: Sequence[Task]) -> str:
    return some(task.name for task in tasks)
