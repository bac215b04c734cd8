"""The trigger of a training that the stand-in cluster runs, as the operator would make it."""

from __future__ import annotations

from tony_provider.runtime.codec import to_plain
from tony_provider.triggers.deferred_job import DeferredJob
from tony_provider.triggers.tony import TonyJobTrigger


def trigger_of(application_id: str) -> TonyJobTrigger:
    job = DeferredJob("tony_default", None, "bench", application_id, application_id, kill=False)
    return TonyJobTrigger(job=to_plain(job), poll_interval=5.0, end=None, queue=None, whose="")
