"""The description of a small application, for tests that only need one."""

from __future__ import annotations

from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.jobspec.model import JobSpec

DESCRIPTION = ApplicationDescription(
    "application_1_0001",
    "me",
    JobSpec("standalone", {}),
    "hdfs://nn/jobs/x",
    None,
    [],
    LocalizedResource("tony-runtime.zip", "hdfs://nn/cache/tony.zip", 1, 2),
)
