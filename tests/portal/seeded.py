"""Seeded jobs for the portal's pages: put into Airflow's database, with histories that no job has written.

Twelve dates of one task, with a gap, a failure, restarts and one that runs; mapped ones; one with odd metrics; and one
whose task was marked as failed while it was deferred.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import attrs
from airflow.models.serialized_dag import SerializedDagModel
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG

from tests.portal import stored
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord
from tony_provider.cluster.records.summary import Advice, Confidence, Curve, JobSummary
from tony_provider.portal.job_views import LiveState
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.protocol.status import (
    Failure,
    FailureKind,
    FinalStatus,
    JobState,
    JobStatus,
    TaskProgress,
    TaskStatus,
    TimeUse,
    TypeUse,
)
from tony_provider.runtime.protocol.status import TaskState as State

READER = "frank"
DAG_ID, SWEEP, ODD, MARKED = "seeded_clicks", "seeded_sweep", "seeded_odd", "seeded_marked"
DAYS = 12
REFUSAL = "the job specification has one problem:\n  tasks.worker.memory: must be a size (got 'lots')"
GAP, FAILED, RESTARTED, RUNNING = 4, 6, 8, 11  # days of DAG_ID
MAPPED = 3  # instances of SWEEP's task
MANY = 3_000  # metrics of ODD's job: more than a summary has, and less than the portal leaves unread
HTML = "<img src=x onerror=\"document.title='broken'\"><b>loss</b>"  # a metric's name
_NUMBERS = {DAG_ID: 1000, SWEEP: 1100, ODD: 1200, MARKED: 1300}  # of the first application of each DAG


def application_id(dag_id: str, number: int) -> str:
    return stored.application_id(_NUMBERS[dag_id] + number)


def seed() -> None:
    """All of it. Needs Airflow's database."""
    for dag_id, days in ((DAG_ID, DAYS), (SWEEP, 1), (ODD, 1), (MARKED, 1)):
        stored.add_dag(dag_id)
        _add_code(dag_id)
        for day, run in enumerate(stored.add_runs(dag_id, days)):
            _add_day(dag_id, day, run)


def _add_code(dag_id: str) -> None:
    with DAG(dag_id, schedule=None) as dag:
        EmptyOperator(task_id="prepare") >> EmptyOperator(task_id="train")
    SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name=stored.BUNDLE)


def _add_day(dag_id: str, day: int, run: int) -> None:
    if dag_id == SWEEP:
        for index in range(MAPPED):
            stored.add_instance(dag_id, day, "success", map_index=index)
            nothing: dict[str, Any] = {} if index else {"metrics": {}, "curves": []}  # the first one reports no metric
            stored.add(run, summary(dag_id, index, map_index=index, run_id=stored.run_id(0), **nothing))
        return
    if dag_id == DAG_ID and day in (GAP, FAILED):
        stored.add_refusal(run, day, dag_id, REFUSAL)
    if dag_id == DAG_ID and day == GAP:
        stored.add_instance(dag_id, day, "failed")
        return
    runs = dag_id == DAG_ID and day == RUNNING
    failed = dag_id == DAG_ID and day == FAILED
    if dag_id == MARKED:
        stored.add_instance(dag_id, day, "failed")
        stored.add(run, summary(dag_id, day, verdict=None, finished_ms=None, times=TimeUse(), use=[], metrics={}))
        return
    stored.add_instance(dag_id, day, "running" if runs else "failed" if failed else "success")
    stored.add(run, summary(dag_id, day))
    if failed:  # the try before failed, too
        stored.add(run, summary(dag_id, 50 + day, run_id=stored.run_id(day), run_date=stored.day(day).isoformat()))


def summary(dag_id: str, number: int, **fields: Any) -> JobSummary:
    """Of one job: ``number`` is its day, or its map index."""
    day = number % 50 if dag_id == DAG_ID else 0
    submitted = int(stored.day(day).timestamp() * 1000) + (0 if number < 50 else -600_000)
    known: dict[str, Any] = {
        "application_id": application_id(dag_id, number),
        "application_dir": f"file:///nowhere/jobs/x-00000000000000000000/applications/{application_id(dag_id, number)}",
        "run_id": stored.run_id(day),
        "run_date": stored.day(day).isoformat(),
        "submitted_ms": submitted,
        "finished_ms": submitted + 3_600_000 + 60_000 * day,
        "user": "alice" if day % 3 else "bob",
        "queue": "ml",
        "framework": "pytorch",
        "times": TimeUse(
            queue=20.0 + 9 * day,
            allocation=35.0 + 4 * day,
            localisation=22.0,
            start=41.0,
            training=3100.0,
            restarts=190.0 if day == RESTARTED else 0.0,
            end=30.0,
            checkpoints=62.0,
            repeated=240.0 if day == RESTARTED else 0.0,
        ),
        "use": [
            TypeUse(
                type="worker",
                tasks=2,
                container_seconds=7300.0 + 100 * day,
                memory_bytes=8 << 30,
                vcores=4,
                gpus=1,
                used_seconds=6900.0,
                most_rss_bytes=3 << 30,
                most_rss_task="worker:1",
                mean_cpu_percent=212.0,
                mean_gpu_percent=71.0,
                most_gpu_bytes=12 << 30,
            )
        ],
        "step": 1000,
        "total_steps": 1000,
        "steps_per_second": 3.2,
        "checkpoint_step": 1000,
        "metrics": {"loss": _loss(1000, day), "accuracy": 0.9 + day / 200},
        "parameters": {"optimizer.lr": f"{0.1 / (1 + number % 50):g}", "batch_size": "32", "day": str(day)},
        "parameter_sources": {"optimizer.lr": "program", "batch_size": "command", "day": "run"},
        "model_dir": f"hdfs://nn/models/{number}",
        "returned": '{"accuracy": 0.875, "classes": ["a", "b"]}',
        "curves": [
            _curve("loss", lambda step: _loss(step, day)),
            _curve("accuracy", lambda step: 1 - _loss(step, day) / 3),
        ],
        "fingerprint": {"job": f"{day // 6:064x}", "files": "0" * 64},
        "links": {"YARN": f"http://rm.example.com:8088/cluster/app/{application_id(dag_id, number)}"},
    }
    return stored.summary(0, dag_id, **{**known, **_special(dag_id, number), **fields})


def _special(dag_id: str, number: int) -> dict[str, Any]:
    """What is other of some of them."""
    if dag_id == ODD:
        many = {f"layer/{at:05}/norm": at / 7 for at in range(MANY)}
        odd = {HTML: 0.25, "gone": "NaN", "exploded": "Infinity"}
        curves = [
            _curve(HTML, lambda step: 1 / step),
            _curve("gone", lambda step: "NaN"),
            _curve("holes", lambda step: "NaN" if 300 < step < 500 else "-Infinity" if step > 900 else step / 100),
        ]
        return {"metrics": {**odd, **many}, "curves": curves, "name": "<script>alert(1)</script>"}
    if dag_id == DAG_ID and number % 50 == FAILED:
        return {
            "verdict": FinalStatus.FAILED,
            "failure_kind": FailureKind.OUT_OF_MEMORY,
            "failed_task": "worker:1",
            "failed_node": "node-7.example.com",
            "cause": "MemoryError: cannot allocate 8.2 GiB",
            "step": 412,
            "reason": "worker:1 on node-7.example.com was killed: it used 8.2 of 8 GiB",
        }
    if dag_id == DAG_ID and number == RESTARTED:
        advice = Advice(
            rule="memory-too-much",
            text="worker asks for 8 GiB and used 3 GiB at most: ask for 4 GiB",
            confidence=Confidence.HIGH,
            change={"tasks": {"worker": {"memory": "4GiB"}}},
            gain=0.5,
        )
        return {"restarts": 1, "advice": [advice], "warnings": ["the side-car tensorboard:0 failed"]}
    if dag_id == DAG_ID and number == RUNNING:
        return {
            "verdict": None,
            "finished_ms": None,
            "step": 640,
            "curves": [_curve("loss", lambda step: _loss(step, 0), 64)],
        }
    return {}


def _loss(step: int, day: int) -> float:
    return round(2.5 * math.exp(-step / (220 + 15 * day)) + 0.08 + 0.02 * math.sin(step / 17 + day), 4)


def _curve(metric: str, value: Any, points: int = 100) -> Curve:
    steps = [10 * (at + 1) for at in range(points)]
    return Curve(
        metric=metric,
        steps=steps,
        seconds=[100.0 + step * 3.1 for step in steps],
        values=[value(step) for step in steps],
    )


def history(application: str) -> JobHistory:
    """What the store has of a job. Its clock goes back once, and its second worker's too."""
    number = int(application.rpartition("_")[2])
    dag_id = max((each for each, first in _NUMBERS.items() if first <= number), key=lambda each: _NUMBERS[each])
    about = summary(dag_id, number - _NUMBERS[dag_id])
    restarted = about.restarts > 0
    job = {
        "name": about.name,
        "framework": "pytorch",
        "tasks": {
            "worker": {
                "instances": 2,
                "memory": "8GiB",
                "vcores": 4,
                "gpus": 1,
                "command": f"python train.py --day {about.run_date}",
            }
        },
        "restart": {"scope": "gang"},
    }
    return JobHistory(
        application_id=application,
        specification=SpecificationRecord(job=job, given=job, overrides={"tasks": {"worker": {"gpus": 1}}}),
        events=[*_events(about, restarted), *(_damaged_events(about) if dag_id == ODD else [])],
        samples=[] if dag_id == ODD else _samples(about),
        missing=["samples: none are there"] if dag_id == ODD else [],
    )


def _events(about: JobSummary, restarted: bool) -> list[dict[str, Any]]:
    told: list[tuple[float, str, str, str | None]] = [
        (20, "requested", "waiting for 2 of 2 containers: 2 x worker (8 GiB, 4 vcores, 1 GPU)", None),
        (50, "allocated", "container_01_000002 on node-3", "worker:0"),
        (95, "gang_complete", "all 2 containers were granted", None),
        (94, "resume_chosen", "generation 1 begins at step 0: there is no checkpoint", None),
        (120, "rendezvous", "generation 1 with 2 tasks, from the beginning", None),
        (1200, "checkpoint", "step 400 is on the store", None),
    ]
    if restarted:
        told += [
            (
                1900,
                "failed",
                "worker:1 on node-7 ended with exit code 1\n  Traceback …\nRuntimeError: <b>NCCL</b>",
                "worker:1",
            ),
            (1901, "restarting", "the gang restarts: worker:1 on node-7 ended with exit code 1", None),
            (2100, "rendezvous", "generation 2 with 2 tasks, from step 400", None),
            (3000, "checkpoint", "step 800 is on the store", None),
        ]
    if about.verdict:
        told.append(
            (3590, "verdict", f"{about.verdict.value}: {about.reason or 'the job has succeeded'}", about.failed_task)
        )
    events = [
        {
            "time_ms": about.submitted_ms + int(at * 1000),
            "event": event,
            "message": text,
            **({"task": task} if task else {}),
        }
        for at, event, text, task in told
    ]
    return [{"time_ms": about.submitted_ms + 10_000, "event": "application", "message": "", "labels": {}}, *events]


def _damaged_events(about: JobSummary) -> list[dict[str, Any]]:
    time_ms = about.submitted_ms + 3_590_000
    return [{"time_ms": time_ms, "event": "failed"}, {"event": "verdict", "message": {}, "time_ms": "noon"}, {}]


def _samples(about: JobSummary) -> list[TaskSample]:
    found = []
    for at in range(200):
        for rank in range(2):
            jumped = 60_000 if rank and at == 120 else 0
            found.append(
                TaskSample(
                    time_ms=about.submitted_ms + 130_000 + at * 15_000 - jumped,
                    seconds=15.0,
                    task=f"worker:{rank}",
                    values={
                        "rss_bytes": int((1.2 + 1.6 * min(1, at / 60) + 0.1 * rank) * 2**30),
                        "cpu_percent": 200 + 40 * math.sin(at / 9 + rank),
                        "gpu_percent": 70.0 + 8 * math.sin(at / 5),
                        "gpu_bytes": 12 << 30,
                        "read_bytes": 400_000_000,
                        "sent_bytes": 52_000_000,
                    },
                    step=at * 5,
                    steps_per_second=3.2 + 0.2 * math.sin(at / 11),
                    metrics={"loss": _loss(at * 5, 0) + 0.03 * rank, "accuracy": 1 - _loss(at * 5, 0) / 3},
                )
            )
    return found


def live(application: str) -> LiveState:
    """What the cluster and the store say now."""
    if application == application_id(MARKED, 0):
        failure = Failure(FailureKind.KILLED, "the deferred task was marked or cleared by a user")
        ended = attrs.evolve(
            status(application), state=JobState.KILLED, failure=failure, times=TimeUse(training=90.0), finished_ms=1
        )
        return LiveState(None, ended, [])
    return LiveState(Application(application, ApplicationState.RUNNING), status(application), [])


def status(application: str) -> JobStatus:
    """What the job of the day RUNNING says of itself."""
    progress = TaskProgress(step=640, total_steps=1000, steps_per_second=3.2, metrics={"loss": 0.2})
    tasks = [
        TaskStatus(
            type="worker",
            index=rank,
            state=State.RUNNING,
            node=f"node-{rank}",
            rss_bytes=3 << 30,
            cpu_percent=212.0,
            progress=progress,
        )
        for rank in range(2)
    ]
    return JobStatus(
        application_id=application,
        name="seeded",
        state=JobState.RUNNING,
        message="step 640 of 1000",
        progress=0.64,
        tasks=tasks,
        leader="worker:0",
    )


_READ = itertools.count(1)


def printed(task: str) -> bytes:
    """What a task has printed: a line more whenever it is read."""
    lines = [f"{task} begins", *(f"<b>step {at}</b>" for at in range(100)), "RuntimeError: <i>out of memory</i>"]
    return "\n".join([*lines, *(f"read {at}" for at in range(next(_READ))), ""]).encode()
