"""Validate when tasks start: ``after``, the type ``prepare``, ``start``, tolerated failures and ``windows``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from zoneinfo import ZoneInfo

import attrs

from tony_provider.runtime.common.network import HIGHEST_PORT
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.frameworks.task_type_rules import types_that_end_the_job_before
from tony_provider.runtime.jobspec.model import (
    JobSpec,
    Milestone,
    MirrorScope,
    ReadinessProbe,
    RestartScope,
    Role,
    StartRule,
)
from tony_provider.runtime.jobspec.opening_hours import read_hours
from tony_provider.runtime.jobspec.problems import Problem, child, item, must_be_among
from tony_provider.runtime.jobspec.task_types import in_cluster

_SERVES = (Role.PS, Role.EVALUATOR, Role.SIDECAR)
"""Roles of tasks that the end of the others stops."""


def dependency_problems(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of waits that cannot end, and of waits between tasks that start together."""
    for task_type in job.tasks:
        waits = job.waits_for(task_type).items()
        found = [each for wait in waits for each in _wait(job, framework, task_type, *wait)]
        if waits:
            yield from found or _too_late(job, framework, task_type)
    for task_type, task in job.tasks.items():
        if task.ready is not None:
            yield from _probe(task.ready, child("tasks", task_type, "ready"))
    yield from _cycle(job)
    yield from _one_gang(job, framework)


def _path(task_type: str, other: str) -> str:
    return child("tasks", task_type, "after", other)


def _wait(job: JobSpec, framework: Framework, task_type: str, other: str, milestone: Milestone) -> Iterator[Problem]:
    path = _path(task_type, other)
    if other not in job.tasks:
        hint = must_be_among(other, list(job.tasks))
        yield Problem(path, milestone.value, f"there is no task type {other}{hint}")
        return
    if milestone is Milestone.READY and job.tasks[other].ready is None:
        where = child("tasks", other, "ready")
        yield Problem(path, milestone.value, f"nothing says when {other} is ready; give it {where}")
    role, other_role = job.role(task_type), job.role(other)
    if milestone is Milestone.SUCCEEDED:
        if other_role in _SERVES:
            message = f"a {other_role.value} does not end by itself; wait for it to be started or ready"
            yield Problem(path, milestone.value, message)
        elif role in _SERVES and other_role is not Role.ONCE:
            message = f"a {role.value} is stopped when the others have succeeded; give {task_type} the role once"
            yield Problem(path, milestone.value, message)
    if {task_type, other} <= set(_gang(job, framework)) and task_type != other:
        message = f"{task_type} and {other} {_together(framework)} and begin together; outside of that is the role once"
        yield Problem(path, milestone.value, message)


def _too_late(job: JobSpec, framework: Framework, task_type: str) -> Iterator[Problem]:
    """Yield a problem if the job may end before this type can start, because of direct or indirect dependencies."""
    ending = types_that_end_the_job_before(job, framework, task_type)
    if ending:
        waits = job.waits_for(task_type)
        other = next((name for name in waits if name in ending), next(iter(waits)))
        rule = f" (success: {job.success.value})" if job.success else ""
        of_these = " and ".join(name for name in job.tasks if name in ending)
        message = f"the success of {of_these} is the job's{rule}, and {task_type} never begins"
        remedy = "" if job.success or job.role(task_type) is Role.ONCE else "; give it the role once"
        yield Problem(_path(task_type, other), waits[other].value, f"{message}{remedy}")


def _gang(job: JobSpec, framework: Framework) -> list[str]:
    """Return the types that train together or restart together."""
    takes_along = [
        name
        for name, task in job.tasks.items()
        if (task.restart or framework.scope(job.role(name))) is RestartScope.GANG
        and job.role(name) not in (Role.SIDECAR, Role.ONCE)
    ]
    if framework.first_come and not takes_along:
        return []
    return [name for name in job.tasks if in_cluster(job.role(name)) or name in takes_along]


def _together(framework: Framework) -> str:
    return "start again together (restart: gang)" if framework.first_come else "train together"


def _probe(probe: ReadinessProbe, path: str) -> Iterator[Problem]:
    given = [name for name, value in attrs.asdict(probe).items() if value is not None]
    if len(given) != 1:
        yield Problem(path, attrs.asdict(probe), "is one of command, port and file")
    if probe.port is not None and not 0 <= probe.port <= HIGHEST_PORT:
        yield Problem(child(path, "port"), probe.port, "must be a port, or 0 for the task's own (TONY_PORT)")
    for name in ("command", "file"):
        value = getattr(probe, name)
        if value is not None and not value.strip():
            yield Problem(child(path, name), value, "must not be empty")


def _cycle(job: JobSpec) -> Iterator[Problem]:
    try:
        TopologicalSorter({task_type: job.waits_for(task_type) for task_type in job.tasks}).prepare()
    except CycleError as error:
        way: list[str] = error.args[1][::-1]  # each waits for the next; the last equals the first
        message = f"would wait for itself: {' waits for '.join(way)}"
        yield Problem(_path(way[0], way[1]), job.waits_for(way[0])[way[1]].value, message)


def _one_gang(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of types that train together but wait for different types, because they start together."""
    gang = _gang(job, framework)
    outside = [_without(job.waits_for(task_type), gang) for task_type in gang]
    for task_type, after in zip(gang, outside):
        if after != outside[0]:
            path = child("tasks", task_type, "after")
            message = f"must be that of {gang[0]}: they {_together(framework)} and begin together"
            yield Problem(path, {name: each.value for name, each in after.items()}, message)


def _without(after: Mapping[str, Milestone], others: Sequence[str]) -> dict[str, Milestone]:
    return {name: milestone for name, milestone in after.items() if name not in others}


_ALONE = "it is for tasks that do without each other, as those of the framework standalone"


def start_problems(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of ``start``, ``after`` and ``tolerated_failures``, and of other keys in combination with them."""
    yield from dependency_problems(job, framework)
    for task_type, task in job.tasks.items():
        if job.role(task_type) is Role.ONCE and task.restart is RestartScope.GANG:
            path = child("tasks", task_type, "restart")
            yield Problem(path, task.restart.value, "what has the role once is not run again with the others")
    if job.start is StartRule.FIRST_COME:
        yield from _first_come(job, framework)
    if job.tolerated_failures != "0":
        yield from _tolerated(job, framework)


def _first_come(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    if not framework.first_come:
        message = f"tasks of the framework {job.framework} begin together; {_ALONE}"
        yield Problem("start", job.start.value, message)
        return
    for task_type, task in job.tasks.items():
        if task.restart is RestartScope.GANG:
            path = child("tasks", task_type, "restart")
            yield Problem(path, task.restart.value, "with start: first-come each task starts again by itself")
    if job.checkpoint.mirror is MirrorScope.ALL:
        message = "needs all ranks at work at a time, which start: first-come does not give; use leader or off"
        yield Problem("checkpoint.mirror", job.checkpoint.mirror.value, message)


def _tolerated(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    workers = {name: task for name, task in job.tasks.items() if job.role(name) is Role.WORKER}
    if not workers:
        yield Problem("tolerated_failures", job.tolerated_failures, "there is no worker whose failure it could be")
    for task_type, task in workers.items():
        scope = task.restart or framework.scope(Role.WORKER)
        if scope is RestartScope.GANG:
            message = f"the failure of a {task_type} takes the others along (restart: gang); {_ALONE}"
            yield Problem("tolerated_failures", job.tolerated_failures, message)


def windows_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the hours in which the job may have containers."""
    if job.windows is None:
        return
    if not job.windows.open:
        yield Problem("windows.open", [], "it never opens: name hours, such as 22:00-06:00, or leave windows out")
    if not _is_zone(job.windows.zone):
        message = "is no time zone that this machine knows; write it as the IANA does, such as Europe/Berlin or UTC"
        yield Problem("windows.zone", job.windows.zone, message)
    # An unreadable value is empty here, and is already reported.
    hours = [(index, text, read_hours(text)) for index, text in enumerate(job.windows.open) if text]
    for (_, one, first), (index, two, second) in combinations(hours, 2):
        if first.overlap(second):
            yield Problem(item("windows.open", index), two, f"overlaps with {one!r}; name each hour of the week once")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # names no file, leads to another directory, or is unknown
        return False
    return True
