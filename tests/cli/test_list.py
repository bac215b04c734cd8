"""``airflow tony list``: what it shows of running jobs, which their masters report."""

from __future__ import annotations

import json
import os
import signal

from tests.cli.conftest import Tony
from tests.cli.test_naming import MONDAY, TUESDAY, submitted
from tests.hooks.jobs import SECONDS, ended
from tests.jobs.processes import processes_of
from tests.waiting import until
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook

REPORTS = """echo '{"step": 405, "total_steps": 1000}' >> "$TONY_METRICS_FILE"; exec sleep 600"""


def reporting(hook: TonyHook, run_id: str, index: int = -1) -> TonyJob:
    """A job that has reported a step."""
    found = submitted(hook, run_id, command=REPORTS, index=index)
    until(lambda: (status := found.status()) is not None and status.step == 405, f"the step of {found}", SECONDS)
    return found


def test_a_running_job_is_listed_with_its_task_run_and_step(tony: Tony, local: TonyHook) -> None:
    found = reporting(local, TUESDAY, index=2)
    (row,) = json.loads(tony("list", "--output", "json").out)
    assert row["started"].endswith("+00:00")
    expected = {
        "application_id": found.application_id,
        "name": "small",
        "dag_id": "clicks",
        "task_id": "train",
        "run_id": TUESDAY,
        "map_index": 2,
        "state": "RUNNING",
        "final_status": None,
        "step": 405,
        "total_steps": 1000,
        "ended": None,
        "tag": found.training.tag,
    }
    assert {key: row[key] for key in expected} == expected
    head, _, line = tony("list").out.splitlines()[:3]
    assert [cell.strip() for cell in head.split("|")][1:3] == ["job", "run"]
    assert "ended" not in head  # no job has ended
    assert max(len(head), len(line)) <= 160
    assert f"{found} | clicks.train[2] | 2026-01-06 |" in line
    assert "| RUNNING | 405 of 1,000 (40 %) |" in line
    plain = tony("list", "--output", "plain").out.splitlines()
    assert plain[0].split() == list(row)
    assert "-" in plain[1].split()

    found.kill("seen")
    ended(local, found.application_id)
    assert " ago" not in tony("status", found.application_id).out  # its last heartbeat is of no use
    assert tony("list").out.startswith("No job is running")
    assert "| KILLED |" in tony("list", "--ended").out


def test_a_master_that_does_not_answer_does_not_break_the_list(tony: Tony, local: TonyHook) -> None:
    found = [reporting(local, run_id) for run_id in (MONDAY, TUESDAY)]
    silent = [each.pid for each in processes_of(found[0].application_id)]
    for pid in silent:
        os.kill(pid, signal.SIGSTOP)
    try:
        said = tony("list", "--output", "json")
    finally:
        for pid in silent:
            os.kill(pid, signal.SIGCONT)
    steps = {row["application_id"]: row["step"] for row in json.loads(said.out)}
    assert (said.code, steps) == (0, {found[0].application_id: None, found[1].application_id: 405})
    assert said.error.startswith(f"The progress of 1 job is unavailable, for example {found[0]}: ")
    for each in found:
        each.kill("seen")
        ended(local, each.application_id)
