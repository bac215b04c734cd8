"""A job that is measured before and after its advice was applied, as a task of a DAG that runs every day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.advice.real.jobs import fit
from tests.advice.real.table import Verdicts
from tests.airflow_dags import run
from tests.operators.conftest import described, local, training
from tests.operators.jobs import DAG_ID, dag_of
from tests.operators.trainings import Telling, Training
from tony_provider.advice import advise
from tony_provider.advice.rules.memory_requests import MemoryTooLittle, MemoryTooMuch
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.protocol.status import TypeUse

__all__ = ["described", "local", "training"]

MIB = 1 << 20
JOB = {"framework": "standalone", "am": {"memory": "256MiB"}}


@pytest.mark.long
def test_a_job_before_and_after_its_advice_was_applied(
    training: Training, verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains for some seconds, which shall be enough for the rules."""
    monkeypatch.setattr(advise, "APPLIED_RULES", (MemoryTooLittle(), MemoryTooMuch(least_seconds=3.0)))
    spec = {**JOB, **fit("--steps 60 --pace 0.1 --holds 20", memory="768MiB")}
    before = run_of(training, spec, day=1)
    after = run_of(training, spec, day=2)
    assert (before.memory_bytes, after.memory_bytes) == (768 * MIB, 512 * MIB)
    for each in (before, after):
        assert each.most_rss_bytes is not None
        assert 20 * MIB < each.most_rss_bytes < 80 * MIB
    identity_of_day = training.hook.identity(dag_id=DAG_ID, run_id=run_id(2), task_id="train")
    newest = training.hook.newest_application(identity_of_day) or ""
    kept = training.hook.job(newest, identity_of_day).history().specification
    assert kept is not None
    assert kept.overrides == {"tasks": {"worker": {"memory": "512MiB"}}}
    assert training.said(r"Advice is applied \(apply_advice\): worker.memory 512MiB instead of 768 MiB")
    assert not training.said("Advice: Request")
    third = run_of(training, spec, day=3)  # it stays so, though the run before asked for no more
    assert third.memory_bytes == 512 * MIB
    verdicts.applied("apply_advice, day after day", [_measured(each) for each in (before, after, third)])


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


def _measured(use: TypeUse) -> str:
    held = use.memory_bytes * use.container_seconds
    return f"asked for {size(use.memory_bytes)}, used {size(use.most_rss_bytes or 0)}, held {size(held)} seconds"
