"""All that is known of an application, running or ended, as its files on the store say it."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.cluster.history.job_specification import JobSpecification
from tony_provider.runtime.history.task_sample import TaskSample
from tony_provider.runtime.protocol.status import JobStatus


@attrs.frozen(kw_only=True)
class JobHistory:
    """All that is kept of an application. What could not be read is named in ``missing``, and left out."""

    application_id: str
    specification: JobSpecification | None = None
    status: JobStatus | None = None  # its result, or the newest status that it has left
    events: list[dict[str, Any]] = attrs.field(factory=list)  # oldest first; keys: see docs/history.md
    samples: list[TaskSample] = attrs.field(factory=list)  # of all tasks, in the order in which they were taken
    labels: dict[str, str] = attrs.field(factory=dict)  # where it came from: dag_id, run_id, task_id, …
    missing: list[str] = attrs.field(factory=list)  # what is not there or cannot be read, and why, a line each
