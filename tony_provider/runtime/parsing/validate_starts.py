"""What must be so for tasks to begin as they come or one type after the other, and for some of them to fail."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.parsing.validate_dependencies import dependency_problems
from tony_provider.runtime.spec.model import JobSpec, MirrorScope, RestartScope, Role, StartRule
from tony_provider.runtime.spec.problems import Problem, child

_ALONE = "it is for tasks that do without each other, as those of the framework standalone"


def start_problems(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """What is wrong with ``start``, ``after`` and ``tolerated_failures``, and with other keys because of them."""
    yield from dependency_problems(job, framework)
    for task_type, task in job.tasks.items():
        if job.role(task_type) is Role.ONCE and task.restart is RestartScope.GANG:
            path = child(child("tasks", task_type), "restart")
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
            path = child(child("tasks", task_type), "restart")
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
