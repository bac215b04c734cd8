"""Which task types come after the success of which others."""

from __future__ import annotations

from tony_provider.runtime.spec.model import JobSpec, Milestone


def succeeded_before(job: JobSpec, task_type: str) -> frozenset[str]:
    """The types that have succeeded when this one begins: those that it waits for, and those that these wait for."""
    found: set[str] = set()
    seen, left = {task_type}, [task_type]
    while left:
        for other, milestone in job.waits_for(left.pop()).items():
            if milestone is Milestone.SUCCEEDED:
                found.add(other)
            if other in job.tasks and other not in seen:
                seen.add(other)
                left.append(other)
    return frozenset(found)
