"""The trigger of a training that the stand-in cluster runs, as the operator would make it."""

from __future__ import annotations

import time

from tony_provider.runtime.common.codec import to_plain
from tony_provider.triggers.tony import DeferredJob, TonyJobTrigger
from tony_provider.watching.task_output import OutputSelection


def trigger_of(application_id: str) -> TonyJobTrigger:
    output = OutputSelection(fresh_until=time.time() + 120)
    job = DeferredJob("tony_default", None, "bench", application_id, application_id, kill=False, output=output)
    return TonyJobTrigger(job=to_plain(job), poll_interval=5.0, end=None, queue=None, whose="")
