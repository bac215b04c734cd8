"""What a job would be after a resize, as the cluster is asked whether it could hold it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from tony_provider.cluster.lifetime import problems
from tony_provider.cluster.yarn.job_checks import demands
from tony_provider.hooks.job import resized
from tony_provider.runtime.parsing.parse import parse_job


def test_all_that_are_asked_for_must_have_room_and_of_other_types_what_is_needed() -> None:
    worker = {"command": "true", "instances": 4, "min_instances": 2, "max_instances": 9}
    job = parse_job({"framework": "generic", "tasks": {"worker": worker, "more": worker}})
    assert (job.size, job.minimum_containers("worker")) == (18, 2)

    larger = resized(job, {"worker": 9})

    counts = {demand.what: demand.count for demand in demands(larger, {})}
    assert counts == {"am": 1, "tasks.worker": 9, "tasks.more": 2}


def test_one_that_goes_on_outside_of_its_windows_may_be_resized() -> None:
    """By somebody's word, and for the hour that is left to it."""
    later = datetime.now(UTC) + timedelta(hours=12)
    worker = {"command": "true", "max_instances": 9}
    windows = [f"{later:%a %H:%M}-{later + timedelta(hours=1):%H:%M}"]
    job = parse_job(
        {"framework": "generic", "tasks": {"worker": worker}, "windows": windows, "timeouts": {"lifetime": "1h"}}
    )
    assert problems(job, time.time())
    assert problems(resized(job, {"worker": 9}), time.time()) == []
