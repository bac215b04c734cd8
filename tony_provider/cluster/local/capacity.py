"""Check of a job against what this machine may give."""

from __future__ import annotations

from tony_provider.cluster.settings import LocalSettings
from tony_provider.runtime.peak import Peak
from tony_provider.runtime.spec.images import images
from tony_provider.runtime.spec.model import JobSpec, StartRule


def problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    """Every reason why the job could never run here, each with what is allowed instead; empty when it could."""
    found = _size_problems(job, limits)
    found += [
        f"tasks.{name}.resources: this machine has no {', '.join(task.resources)}"
        for name, task in job.tasks.items()
        if task.resources
    ]
    found += [
        f"tasks.{name}.placement: this machine is the only node; leave it out"
        for name, task in job.tasks.items()
        if task.placement is not None
    ]
    if in_image := [path.removesuffix(".docker") for path, image in images(job).items() if image is not None]:
        found.append(
            f"docker: the local backend starts plain processes, not images, and {', '.join(in_image)} would run in one"
        )
    return found


def _size_problems(job: JobSpec, limits: LocalSettings) -> list[str]:
    first_come = job.start is StartRule.FIRST_COME  # else all of a stage are asked for, whatever would be enough
    tasks = {name: (task, job.at_once(name) if first_come else task.instances) for name, task in job.tasks.items()}
    peak = Peak(job)

    def most(weights: dict[str, int]) -> int:
        return sum(weights[name] for name in peak.heaviest(weights))

    return [
        f"{key}: tasks that run together want {wanted}{unit}, and this machine gives one job {limit}{unit}; ask "
        f"for less, or set `local_{key}` in the tony connection"
        for key, wanted, limit, unit in (
            (
                "memory",
                most({name: task.memory * number for name, (task, number) in tasks.items()}),
                limits.memory,
                " MiB",
            ),
            ("vcores", most({name: task.vcores * number for name, (task, number) in tasks.items()}), limits.vcores, ""),
            ("gpus", most({name: task.gpus * number for name, (task, number) in tasks.items()}), limits.gpus, ""),
        )
        if wanted > limit
    ]
