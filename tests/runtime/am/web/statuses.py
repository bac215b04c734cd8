"""What jobs say of themselves: any that there can be, and one with everything in it."""

from __future__ import annotations

import math

import attrs
from hypothesis import strategies as st

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import (
    ExportedModel,
    ExportRequest,
    Failure,
    FailureKind,
    JobState,
    JobStatus,
    ProcessStatus,
    TaskProgress,
    TaskState,
    TaskStatus,
)

NOW = 1_795_000_000_000  # epoch ms

FULL = JobStatus(
    application_id="application_1_0001",
    name="digits",
    state=JobState.RUNNING,
    message="1 of 3 tasks running",
    am_attempt=2,
    generation=3,
    started_ms=NOW - 7_500_000,
    updated_ms=NOW,
    progress=0.25,
    leader="worker:0",
    checkpoint=ResumePoint(200, "hdfs://n/checkpoints/200", 20),
    resumed=ResumePoint(100, "hdfs://n/checkpoints/100", 10),
    restarts=4,
    failure=Failure(FailureKind.USER, "worker:1 ended with exit code 3\nlast words"),
    warnings=["a side-car failed"],
    tasks=[
        TaskStatus(
            "worker",
            0,
            TaskState.RUNNING,
            attempt=3,
            start=5,
            container_id="container_1_0001_01_000002",
            node="node-1:8041",
            heartbeat_ms=NOW - 2_000,
            rss_bytes=3 << 30,
            cpu_percent=151.0,
            progress=TaskProgress(250, 1000, 2.5, {"loss": 0.123456, "accuracy": math.nan}),
            activity="uploading",
        ),
        TaskStatus("worker", 1, TaskState.FAILED, start=1, exit_code=3, heartbeat_ms=NOW - 90_000),
        TaskStatus("worker", 2, TaskState.LOST, start=1, signal=9, heartbeat_ms=NOW - 90_000),
    ],
)

# Of a job's own making: the letters of HTML are in it, and whatever else comes to mind.
_text = st.one_of(st.text(max_size=20), st.text("<>&\"'=/`\0 \nscript", max_size=20))
_count = st.integers(0, 2**63)
_float = st.floats()


def _maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


_progress = st.builds(
    TaskProgress,
    step=_count,
    total_steps=_maybe(_count),
    steps_per_second=_maybe(_float),
    metrics=st.dictionaries(_text, _float, max_size=3),
)
_process = st.builds(
    ProcessStatus,
    local_rank=_count,
    rank=_count,
    rss_bytes=_maybe(_count),
    cpu_percent=_maybe(_float),
    progress=_maybe(_progress),
)
_task = st.builds(
    TaskStatus,
    type=_text,
    index=_count,
    state=st.sampled_from(TaskState),
    attempt=st.integers(1, 2**31),
    start=_count,
    container_id=_maybe(_text),
    node=_maybe(_text),
    heartbeat_ms=_maybe(_count),
    rss_bytes=_maybe(_count),
    cpu_percent=_maybe(_float),
    progress=_maybe(_progress),
    exit_code=_maybe(st.integers(-(2**31), 2**31)),
    signal=_maybe(st.integers(0, 200)),
    activity=_text,
    further=st.lists(_process, max_size=2),
)
_point = st.builds(ResumePoint, step=_maybe(_count), uri=_text, save=_count, saved_ms=st.integers(0, NOW))
any_status = st.builds(
    JobStatus,
    application_id=_text,
    name=_text,
    state=st.sampled_from(JobState),
    message=_text,
    am_attempt=_count,
    generation=_count,
    started_ms=_count,
    updated_ms=_count,
    finished_ms=_maybe(_count),
    progress=_float,
    tasks=st.lists(_task, max_size=3),
    model_dir=_maybe(_text),
    resumed=_maybe(_point),
    checkpoint=_maybe(_point),
    export=_maybe(st.builds(ExportedModel, step=_count, uri=_text, exported_ms=st.integers(0, NOW))),
    export_request=_maybe(st.builds(ExportRequest, asked_ms=_count, reason=_text, since_ms=_count)),
    restarts=_count,
    failure=_maybe(st.builds(Failure, kind=st.sampled_from(FailureKind), message=_text)),
    warnings=st.lists(_text, max_size=2),
).map(lambda status: attrs.evolve(status, leader=status.tasks[0].name if status.tasks else None))


def gang(size: int, **odd: TaskState) -> JobStatus:
    """So many workers, all running but for those named, such as ``worker_7=TaskState.LOST``."""
    states = {f"worker_{index}": TaskState.RUNNING for index in range(size)} | odd
    tasks = [TaskStatus("worker", index, state) for index, state in enumerate(states.values())]
    return attrs.evolve(FULL, tasks=tasks)
