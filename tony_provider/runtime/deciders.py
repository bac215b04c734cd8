"""The task types whose success is the job's, and those that could begin only when there is no job any more."""

from __future__ import annotations

from collections.abc import Sequence

from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.spec.model import JobSpec, Role, SuccessRule
from tony_provider.runtime.spec.succession import succeeded_before


def deciding_types(job: JobSpec, framework: Framework) -> Sequence[str]:
    """The task types that decide."""
    return [name for name in _by_rule(job, framework) if job.tasks[name].decides]


def _by_rule(job: JobSpec, framework: Framework) -> Sequence[str]:
    if job.success is None:
        return [*framework.decisive(job), *(name for name, role in job.roles.items() if role is Role.ONCE)]
    chief_only = job.success is SuccessRule.CHIEF
    once = [name for name, role in job.roles.items() if role is Role.ONCE and job.success is SuccessRule.ALL]
    tracked = [name for name, role in job.roles.items() if role is Role.CHIEF or (role.is_tracked and not chief_only)]
    return [*tracked, *once]


def that_end_the_job_before(job: JobSpec, framework: Framework, task_type: str) -> frozenset[str]:
    """The task types whose success ends the job before this one could begin; empty when it can."""
    deciding = frozenset(deciding_types(job, framework))
    succeeded = deciding & succeeded_before(job, task_type)
    return succeeded if succeeded == deciding or job.success is SuccessRule.ANY else frozenset()
