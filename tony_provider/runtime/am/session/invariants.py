"""Invariants of a session between two events, whatever happens to the job."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.runtime.am.session.context import SessionContext
from tony_provider.runtime.am.session.session_state import Task
from tony_provider.runtime.protocol.status import JobState, TaskState

_HOLDING = (TaskState.STARTING, TaskState.REGISTERED, TaskState.RUNNING)


def violations(session: SessionContext) -> Iterator[str]:
    """Yield every invariant that does not hold, as text."""
    state, containers = session.state, session.containers
    for task in state.by_name.values():
        for problem in _of_task(session, task):
            yield f"{task.name} {problem}"
    for container_id, task in containers.by_id.items():
        if not task.has_container or task.container is None or task.container.id != container_id:
            yield f"{container_id} belongs to {task.name}, which does not hold it"
    for key in containers.gang.outstanding:
        asked = containers.gang.asked(key)
        if asked is None or asked.key != key:
            yield f"no task waits for the container with the request key {key}"
    for name, tasks in state.of_type.items():
        spec = state.job.tasks[name]
        if [task.index for task in tasks] != list(range(len(tasks))):
            yield f"the indices of {name} have gaps"
        if not spec.least_instances <= len(session.sizes.there(name)) <= len(tasks) <= spec.most_instances:
            yield f"there are {len(tasks)} tasks of type {name}"
    for group in session.groups.every:
        if len(group.budget.times) > state.job.restart.budget:
            yield f"{group.name} has restarted more often than restart.budget allows"
        if group.restart and not all(state.has(task) for task in group.restart.members):
            yield f"{group.name} is about to start tasks that the job does not have"
    if state.phase is JobState.SUSPENDED and session.suspension.reason is None:
        yield "the job is suspended without a reason"
    if state.finished and (state.verdict is None or state.phase.value != state.verdict.status.value):
        yield f"the job is {state.phase.value}, which is not its verdict"
    if (state.finished or state.phase is JobState.SUSPENDED) and containers.gang.outstanding:
        yield f"the job is {state.phase.value} and requests containers"
    if state.out:
        yield "actions were not taken"


def _of_task(session: SessionContext, task: Task) -> Iterator[str]:
    state, process = session.state, task.process
    holds = task.has_container or task.key is not None
    if task.has_container and (task.container is None or session.containers.task_in(task.container.id) is not task):
        yield "has a container that does not belong to it"
    if task.key is not None and session.containers.gang.asked(task.key) is not task:
        yield f"waits for the request key {task.key}, which was not requested for it"
    if task.key is not None and task.state is not TaskState.REQUESTED:
        yield f"is {task.state.value} and requests a container"
    if state.phase is not JobState.RECOVERING:  # a recovery handles lost containers once all executors are back
        if task.state in _HOLDING and not task.has_container:
            yield f"is {task.state.value} without a container"
        if task.state is TaskState.RUNNING and (process is None or process.started_at is None):
            yield "is RUNNING without a user process"
    if process and process.start > task.start:
        yield f"has start {process.start}, which was not counted"
    if process and process.order and process.runs and process.start != task.start:
        yield f"runs start {process.start} and was ordered to run start {task.start}"
    if holds and (task.over or task.waits or task.vacant or not state.has(task)):
        yield "holds or requests a container that it does not need"
    if holds and state.phase is JobState.SUSPENDED:
        yield "holds or requests a container although the job is suspended"
    if task.vacant and not (task.absent and (task.state is TaskState.LOST or state.verdict)):
        yield "is vacant and counts as present"
    if state.finished and not task.ended and state.has(task):
        yield f"is {task.state.value} although the job has ended"
    if (task.state is TaskState.SUCCEEDED and task.decisive) != (task.name in state.successes):
        yield "is counted wrongly among the successes"
