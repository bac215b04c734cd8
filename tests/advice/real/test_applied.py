"""Real jobs that deserve advice and some that do not, on the embedded local cluster: as their masters measure them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.airflow_dags import run
from tests.hooks.jobs import ended, identity, job
from tests.operators.conftest import local, training
from tests.operators.jobs import DAG_ID, dag_of
from tests.operators.jobs import job as spec_of
from tests.operators.trainings import Telling, Training
from tony_provider.advice.advise import advise
from tony_provider.advice.rules.memory_too_little import MemoryTooLittle
from tony_provider.advice.rules.memory_too_much import MemoryTooMuch
from tony_provider.advice.rules.vcores_idle import VcoresIdle
from tony_provider.cluster.history.job_history import JobHistory
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.job_figures import TypeUse

__all__ = ["local", "training"]

MIB = 1 << 20
SECONDS = 6  # that each works: some heartbeats
HOLD = "exec python3 -c 'import time; held = b\"x\" * ({} << 20); time.sleep({})'"
SPIN = "exec python3 -c 'import time; end = time.time() + {}\nwhile time.time() < end: pass'"
RULES = (MemoryTooMuch(), MemoryTooLittle(), VcoresIdle(least_seconds=1.0))

JOBS: dict[str, dict[str, Any]] = {
    "little": {"command": HOLD.format(20, SECONDS), "memory": "768MiB"},
    "nearly-all": {"command": HOLD.format(245, SECONDS), "memory": "256MiB"},
    "enough": {"command": HOLD.format(180, SECONDS), "memory": "256MiB"},
    "sleeps": {"command": f"sleep {SECONDS}", "memory": "256MiB", "vcores": 4},
    "spins": {"command": SPIN.format(SECONDS), "memory": "256MiB", "vcores": 1},
}


def told(history: JobHistory) -> list[str]:
    return [each.rule for each in advise(history, (), RULES)]


@pytest.mark.long
def test_each_is_told_what_it_deserves(local: TonyHook) -> None:
    submitted = {name: local.submit(SubmissionRequest(job(**task_of(name)), identity(local, name))) for name in JOBS}
    found = {}
    for name, application_id in submitted.items():
        ended(local, application_id)
        found[name] = told(local.history(identity(local, name), application_id))
    assert found == {
        "little": ["memory-too-much"],
        "nearly-all": ["memory-too-little"],
        "enough": [],
        "sleeps": ["vcores-idle"],
        "spins": [],
    }


def task_of(name: str) -> dict[str, Any]:
    task = dict(JOBS[name])
    return {"command": task.pop("command"), "task": task, "am": {"memory": "128MiB"}}


@pytest.mark.long
def test_a_job_before_and_after_its_advice_was_applied(training: Training) -> None:
    spec = spec_of(HOLD.format(20, SECONDS))
    spec["tasks"]["worker"]["memory"] = "768MiB"
    before = run_of(training, spec, day=1)
    after = run_of(training, spec, day=2)
    assert (before.memory_bytes, after.memory_bytes) == (768 * MIB, 512 * MIB)
    for each in (before, after):
        assert each.most_rss_bytes is not None
        assert 20 * MIB < each.most_rss_bytes < 60 * MIB
    identity_of_day = training.hook.identity(dag_id=DAG_ID, run_id=run_id(2), task_id="train")
    kept = training.hook.history(identity_of_day, training.hook.newest_application(identity_of_day) or "").specification
    assert kept is not None
    assert kept.overrides == {"tasks": {"worker": {"memory": "512MiB"}}}
    assert training.said(r"Advice is applied \(apply_advice\): worker.memory 512MiB in place of 768 MiB")
    assert not training.said("Advice: Ask for")
    third = run_of(training, spec, day=3)  # it stays so, though the run before asked for no more
    assert third.memory_bytes == 512 * MIB


def run_id(day: int) -> str:
    return f"manual__{datetime(2026, 2, day, tzinfo=UTC).isoformat()}"


def run_of(training: Training, spec: dict[str, Any], *, day: int) -> TypeUse:
    """The figures of the task's run of that day."""
    training.capture.clear()
    with dag_of(spec, Telling, apply_advice=True) as dag:
        done = run(dag, logical_date=datetime(2026, 2, day, tzinfo=UTC), run_after=datetime(2026, 2, day, tzinfo=UTC))
    training.log = training.capture.text
    assert done.state == "success", training.log
    newest = training.hook.former_runs({"dag_id": DAG_ID, "task_id": "train"}).summaries[-1]
    assert newest.application_id == done.results["train"]["application_id"]
    return newest.use[0]
