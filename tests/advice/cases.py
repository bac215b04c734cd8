"""Histories to be judged, built by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tony_provider.advice.case import Case, Rule
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord
from tony_provider.cluster.records.summary import Advice, JobSummary
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.parsing.parse import merge, parse_job
from tony_provider.runtime.protocol.status import (
    Failure,
    FinalStatus,
    JobState,
    JobStatus,
    TaskProgress,
    TaskState,
    TaskStatus,
    TimeUse,
    TypeUse,
)

GIB = 1 << 30
HOUR = 3600.0
TIMES = TimeUse(queue=10, allocation=5, localisation=10, start=20, training=HOUR, end=5)
JOB = {
    "framework": "generic",
    "name": "clicks",
    "tasks": {"worker": {"command": "python train.py", "instances": 4, "memory": "8GiB", "vcores": 4}},
}


def use(**fields: Any) -> TypeUse:
    """Of the workers of JOB: neither too much nor too little, and processors as busy as on average all the time."""
    known = {
        "type": "worker",
        "tasks": 4,
        "container_seconds": 4 * HOUR,
        "used_seconds": 4 * HOUR,
        "memory_bytes": 8 * GIB,
        "vcores": 4,
        "most_rss_bytes": 6 * GIB,
        "most_rss_task": "worker:2",
        "mean_cpu_percent": 300.0,
        "crowded_percent": 0.0,
    }
    made = TypeUse(**{**known, **fields})
    return made if "most_cpu_percent" in fields else attrs.evolve(made, most_cpu_percent=made.mean_cpu_percent)


def history(
    *,
    job: dict[str, Any] | None = None,
    state: JobState = JobState.SUCCEEDED,
    times: TimeUse = TIMES,
    used: Sequence[TypeUse] | None = None,
    events: Sequence[dict[str, Any]] = (),
    samples: Sequence[TaskSample] = (),
    restarts: int = 0,
    failure: Failure | None = None,
    nodes: Sequence[str] = ("n0", "n1", "n2", "n3"),
) -> JobHistory:
    tasks = [
        TaskStatus("worker", index, TaskState.SUCCEEDED, node=node, progress=TaskProgress(step=9))
        for index, node in enumerate(nodes)
    ]
    status = JobStatus(
        "application_1_0009",
        "clicks",
        state,
        tasks=tasks,
        leader="worker:0",
        restarts=restarts,
        failure=failure,
        times=times,
        use=[use()] if used is None else list(used),
    )
    spec = SpecificationRecord(job=to_plain(parse_job(merge(JOB, job or {}))))
    return JobHistory(
        application_id="application_1_0009",
        specification=spec,
        status=status,
        events=[{"time_ms": 1, "event": "application"}, *events],
        samples=list(samples),
    )


def run(number: int = 1, **fields: Any) -> JobSummary:
    """A former one, that has succeeded where nothing else is said."""
    known = {
        "application_id": f"application_1_{number:04}",
        "application_dir": "file:///a",
        "dag_id": "clicks",
        "run_id": f"r{number}",
        "task_id": "train",
        "verdict": FinalStatus.SUCCEEDED,
        "times": TIMES,
        "use": [use()],
    }
    return JobSummary(**{**known, **fields})


def sample(at: int, task: str = "worker:0", **fields: Any) -> TaskSample:
    """Of the ten seconds up to ``at``, in seconds."""
    return TaskSample(time_ms=at * 1000, seconds=10.0, task=task, **fields)


def said(rule: Rule, job: JobHistory, former: Sequence[JobSummary] = ()) -> Advice:
    """What the rule says, of which the change must fit the job."""
    found = rule.advise(Case(job, former))
    assert found is not None
    assert found.rule == rule.name
    assert 0 <= found.gain <= 1
    assert found.text.count("\n") == 0
    if found.change is not None:
        assert job.specification is not None
        parse_job(job.specification.job, overrides=found.change)
    return found


def silent(rule: Rule, job: JobHistory, former: Sequence[JobSummary] = ()) -> bool:
    return rule.advise(Case(job, former)) is None


def evolved(job: JobHistory, **status: Any) -> JobHistory:
    """With other fields of its status."""
    assert job.status is not None
    return attrs.evolve(job, status=attrs.evolve(job.status, **status))
