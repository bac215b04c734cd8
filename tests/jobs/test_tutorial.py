"""The tutorial's program and DAG, as they stand on its page, do what it says of them: on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

from tests.documents.pages import ROOT, blocks
from tests.jobs.job import Job
from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.parsing.parse import parse_job

PROGRAM, DAG_FILE = blocks(ROOT / "docs" / "get-started" / "tutorial.md", "python")
PAUSE = "time.sleep(0.5)"


def test_a_training_goes_on_in_its_container_and_in_its_next_application(local: LocalPlace, tmp_path: Path) -> None:
    assert PAUSE in PROGRAM
    (tmp_path / "fit.py").write_text(PROGRAM.replace(PAUSE, "time.sleep(0.05)"))
    spec = parse_job(_training().job)
    hook = local.hook()
    identity = hook.identity(dag_id="tutorial", run_id="by hand", task_id="train")

    def submit() -> Job:
        request = SubmissionRequest(spec, identity, search_path=[tmp_path])
        return Job(hook, identity, hook.submit(request).application_id, local.log_folders)

    first = submit()
    until(lambda: _checkpoint_of(first), first.describe)
    for process in first.processes():
        if process.words == "python fit.py":
            os.kill(process.pid, signal.SIGKILL)
    until(lambda: len(_beginnings(first.output("worker:0"))) == 2, first.describe)
    assert _beginnings(first.output("worker:0"))[1] > 0
    hook.kill(first.id, "the tutorial says so")
    first.end()
    second = submit()
    status = second.succeeded()

    assert status.resumed_step is not None
    assert _beginnings(second.log("worker:0")) == [status.resumed_step]
    assert abs(json.loads(second.read("model/model.json"))["weight"] - 3) < 0.01


def _training() -> TonyTrainOperator:
    names: dict[str, object] = {}
    exec(DAG_FILE, names)
    task = names["train"]
    assert isinstance(task, TonyTrainOperator)
    return task


def _beginnings(output: str) -> list[int]:
    """The steps that the program said it begins after, one for each start."""
    return [int(step) for step in re.findall(r"^beginning after step (\d+)$", output, re.MULTILINE)]


def _checkpoint_of(job: Job) -> int | None:
    status = job.hook.job_status(job.identity, job.id)
    return status.checkpoint_step if status is not None else None
