"""Invariants of a session between two events, whatever happens to the job."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime.am.session.context import SessionContext
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.protocol.status import JobState, TaskState

_HOLDING = (TaskState.STARTING, TaskState.REGISTERED, TaskState.RUNNING)


def violations(session: SessionContext) -> list[str]:
    """Return every invariant that does not hold, as text."""
    found = [problem for problem, exists in _of_job(session).items() if exists]
    for task in session.state.by_name.values():
        found += [f"{task.name} {problem}" for problem, exists in _of_task(session, task).items() if exists]
    return found


def _of_job(session: SessionContext) -> Mapping[str, object]:
    """Return the possible problems of the job. A true value means that the job has the problem."""
    state, containers, groups = session.state, session.containers, session.groups.every
    suspended, requested = state.phase is JobState.SUSPENDED, containers.gang.outstanding
    return {
        "a container belongs to a task that does not hold it": [
            container_id
            for container_id, task in containers.by_id.items()
            if not task.has_container or task.container is None or task.container.id != container_id
        ],
        "no task waits for a requested container": [
            key for key in requested if (task := containers.gang.asked(key)) is None or task.key != key
        ],
        "the number of tasks of a type is out of its limits": [
            name
            for name, tasks in state.of_type.items()
            for spec in [state.job.tasks[name]]
            if not spec.least_instances <= len(session.sizes.present(name)) <= len(tasks) <= spec.most_instances
        ],
        "restart.budget is exceeded": any(len(group.budget.times) > state.job.restart.budget for group in groups),
        "a task is about to start that the job does not have": any(
            not state.has(task) for group in groups if group.restart for task in group.restart.members
        ),
        "the job is suspended without a reason": suspended and session.suspension.reason is None,
        "the job has another state than its verdict": state.finished
        and (state.verdict is None or state.phase.value != state.verdict.status.value),
        "the job requests containers that it does not need": requested and (suspended or state.finished),
        "actions were not taken": state.out,
    }


def _of_task(session: SessionContext, task: Task) -> Mapping[str, object]:
    """Return the possible problems of a task. A true value means that the task has the problem."""
    state, process, containers = session.state, task.process, session.containers
    holds = task.has_container or task.key is not None
    recovering = state.phase is JobState.RECOVERING  # lost containers are handled once all executors are back
    return {
        "has a container that does not belong to it": task.has_container
        and (task.container is None or containers.task_in(task.container.id) is not task),
        "waits for a container that was not requested for it": task.key is not None
        and (containers.gang.asked(task.key) is not task or task.state is not TaskState.REQUESTED),
        "needs a container and has none": task.state in _HOLDING and not task.has_container and not recovering,
        "is RUNNING without a user process": task.state is TaskState.RUNNING
        and (process is None or process.started_at is None)
        and not recovering,
        "has a start that was not counted": process and process.start > task.start,
        "runs another start than its newest one": process
        and process.order
        and process.runs
        and process.start != task.start,
        "holds or requests a container that it does not need": holds
        and (
            task.done
            or task.waits_for_types
            or task.unrequested
            or not state.has(task)
            or state.phase is JobState.SUSPENDED
        ),
        "is unrequested and counts as present": task.unrequested
        and not (task.left_out and (task.state is TaskState.LOST or state.verdict)),
        "has not ended although the job has": state.finished and not task.ended and state.has(task),
        "is counted wrongly among the successes": (task.state is TaskState.SUCCEEDED and task.decisive)
        != (task.name in state.successes),
    }
