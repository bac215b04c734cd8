"""Whether an input has shards for all tasks that it is dealt to."""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime.quantities import count
from tony_provider.runtime.spec.model import InputDeal, JobSpec
from tony_provider.runtime.spec.problems import child


def wanted(job: JobSpec, name: str) -> int:
    """How many shards an input must have at least: with a static deal one for each task, the job resized or not."""
    if job.inputs[name].deal is InputDeal.QUEUE:
        return 1
    return sum(job.tasks[each].most_instances for each in job.readers(name))


def too_few(job: JobSpec, name: str, shards: int) -> Optional[str]:
    """What is wrong with so few shards, and what to do; None when they suffice."""
    tasks = wanted(job, name)
    if shards >= tasks:
        return None
    found = f"{count(shards, 'shard')} for {count(tasks, 'task')} ({', '.join(job.readers(name))})"
    remedy = "cut the data into more files or pieces (`split_size`), use fewer instances, or write `deal: queue`"
    return f"{child('inputs', name)}: {found}; with a static deal each needs one: {remedy}"
