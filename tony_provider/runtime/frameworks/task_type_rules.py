"""Rules about task types: which decide the job's success, whose failures affect the gang, which run concurrently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from tony_provider.runtime.frameworks.base import Framework, get_framework
from tony_provider.runtime.jobspec.model import (
    JobSpec,
    RestartScope,
    Role,
    StartRule,
    SuccessRule,
    in_cluster,
    succeeded_before,
)


def deciding_types(job: JobSpec, framework: Framework) -> Sequence[str]:
    """Return the task types whose success decides the job's success."""
    return [name for name in _by_rule(job, framework) if job.tasks[name].decides]


def _by_rule(job: JobSpec, framework: Framework) -> Sequence[str]:
    if job.success is None:
        return [*framework.decisive(job), *(name for name, role in job.roles.items() if role is Role.ONCE)]
    chief_only = job.success is SuccessRule.CHIEF
    once = [name for name, role in job.roles.items() if role is Role.ONCE and job.success is SuccessRule.ALL]
    tracked = [name for name, role in job.roles.items() if role is Role.CHIEF or (role.is_tracked and not chief_only)]
    return [*tracked, *once]


def types_that_end_the_job_before(job: JobSpec, framework: Framework, task_type: str) -> frozenset[str]:
    """Return the task types whose success would end the job before ``task_type`` starts; empty if it can start."""
    deciding = frozenset(deciding_types(job, framework))
    succeeded = deciding & succeeded_before(job, task_type)
    return succeeded if succeeded == deciding or job.success is SuccessRule.ANY else frozenset()


def takes_gang_along(job: JobSpec, role: Role, scope: RestartScope) -> bool:
    """Return whether the failure of a task also fails the gang. It does not for sidecars: a job can lose them."""
    if role is Role.SIDECAR:
        return False
    if scope is RestartScope.NEVER:
        # If tasks may start or fail without the others, the failure of one does not imply that another fails.
        independent = job.start is StartRule.FIRST_COME or job.most_failures > 0
        return in_cluster(role) and not independent
    return scope is RestartScope.GANG


class PeakDemand:
    """The sets of task types that may have containers at the same time."""

    def __init__(self, job: JobSpec) -> None:
        """Compute which task types never have containers concurrently. Raises LookupError for an unknown framework."""
        self._job = job
        gone = {name: self._gone_before(name) for name in job.tasks}
        self._apart = {
            name: frozenset(
                other
                for other in job.tasks
                if other != name
                and (
                    other in gone[name] or name in gone[other] or (self._comes_alone(name) and self._comes_alone(other))
                )
            )
            for name in job.tasks
        }

    def heaviest(self, weights: Mapping[str, int]) -> frozenset[str]:
        """Return the task types with the largest sum of weights that may have containers at the same time.

        ``weights`` has a weight of at least 0 for each type. Types with weight 0 are left out.
        """

        @cache
        def best(names: frozenset[str]) -> frozenset[str]:
            """Branch on each type, with or without it, and solve independent groups of types separately."""
            if not names:
                return names
            most = max(sorted(names), key=lambda name: len(self._apart[name] & names))
            if not self._apart[most] & names:
                return names
            part = self._connected(most, names)
            if part != names:
                return best(part) | best(names - part)
            return max(best(names - {most}), best(names - {most} - self._apart[most]) | {most}, key=total)

        def total(names: frozenset[str]) -> int:
            return sum(weights[name] for name in names)

        return best(frozenset(name for name, weight in weights.items() if weight))

    def _connected(self, name: str, names: frozenset[str]) -> frozenset[str]:
        found, left = {name}, [name]
        while left:
            new = (self._apart[left.pop()] & names) - found
            found |= new
            left += new
        return frozenset(found)

    def _comes_alone(self, name: str) -> bool:
        """Return whether tasks of this type start as soon as each has a container, and end independently."""
        role = self._job.role(name)
        return self._job.start is StartRule.FIRST_COME and (role.is_tracked or role is Role.ONCE)

    def _gone_before(self, name: str) -> frozenset[str]:
        """Return the types whose containers have been released when this type starts."""
        succeeded = succeeded_before(self._job, name)
        gang = {other for other in self._job.tasks if in_cluster(self._job.role(other)) or self._is_of_gang(other)}
        whole = {other for other in gang if self._job.role(other) is not Role.PS} <= succeeded
        return frozenset(other for other in succeeded if whole or not self._is_of_gang(other))

    def _is_of_gang(self, name: str) -> bool:
        role = self._job.role(name)
        scope = self._job.tasks[name].restart or get_framework(self._job.framework).scope(role)
        return takes_gang_along(self._job, role, scope)
