"""What the key ``export`` of a job must be."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.runtime.ranks import leading_type
from tony_provider.runtime.spec.model import JobSpec, MirrorScope
from tony_provider.runtime.spec.problems import Problem


def export_problems(job: JobSpec) -> Iterator[Problem]:
    """What is wrong with when the model is exported, and how many exports are kept."""
    if job.export.keep_last < 1:
        yield Problem("export.keep_last", job.export.keep_last, "must be at least 1")
    every = job.export.every
    if every is None:
        return
    if every < 1:
        yield Problem("export.every", every, "must be at least 1")
    if job.checkpoint.mirror is MirrorScope.OFF:
        message = "counts checkpoints on the store, and none come there with checkpoint.mirror: off"
        yield Problem("export.every", every, message)
    if leading_type(job.roles) is None:
        yield Problem("export.every", every, "the chief or the first worker exports the model, and there is neither")
