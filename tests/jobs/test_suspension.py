"""Jobs that give everything back while they are suspended, and come again."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import settled, until
from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.base import read_text

STEPS = 60
# The smallest difference in the past grows large. It saves when it is asked, and before it goes.
PROGRAM = f"""
import json, os, signal, sys, time
from pathlib import Path
import tony_sdk

def save(state):
    directory = Path(os.environ["TONY_CHECKPOINT_DIR"], f"state-{{state['step']}}")
    if not directory.exists():
        directory.mkdir()
        (directory / "state.json").write_text(json.dumps(state))
        tony_sdk.commit_checkpoint(state["step"], directory)

told_to_end = []
signal.signal(signal.SIGTERM, lambda *_: told_to_end.append(True))
resume = os.environ.get("TONY_RESUME_FROM")
state = json.loads(Path(resume, "state.json").read_text()) if resume else {{"step": 0, "chaos": 0.3}}
while state["step"] < {STEPS}:
    time.sleep(0.0 if Path(os.environ["DIARY"], "fast").exists() else 0.2)
    state = {{"step": state["step"] + 1, "chaos": 3.9 * state["chaos"] * (1 - state["chaos"])}}
    with Path(os.environ["DIARY"], "steps").open("a") as diary:
        diary.write(f"{{state['step']}}\\n")
    tony_sdk.report(step=state["step"], total_steps={STEPS})
    if tony_sdk.checkpoint_requested() or told_to_end:
        save(state)
    if told_to_end:
        sys.exit(143)
Path(os.environ["TONY_MODEL_DIR"], "weights.json").write_text(json.dumps(state))
"""


def weights(steps: int) -> float:
    chaos = 0.3
    for _ in range(steps):
        chaos = 3.9 * chaos * (1 - chaos)
    return chaos


def training(place: Place, folder: Path, **more: Any) -> Job:
    program = folder / "train.py"
    program.write_text(PROGRAM)
    diary = folder / "diary"
    diary.mkdir()
    diary.chmod(0o777)
    job = place.submit(
        {
            "files": [str(program)],
            "env": {"DIARY": str(diary)},
            "tasks": {
                "worker": {"memory": "128MiB", "command": "exec python train.py"},
                "sidecar": {"memory": "128MiB", "command": "exec sleep 1000"},
            },
            **more,
        }
    )
    job.until(JobState.RUNNING)
    until(lambda: len(steps(diary)) >= 3, job.describe)
    return job


def steps(diary: Path) -> list[int]:
    file = diary / "steps"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def beside_the_master(job: Job) -> list[str]:
    """What runs of the job's tasks."""
    of_tasks = ("start.py executor", "train.py", "sleep 1000")
    return [each.words for each in job.processes() if any(part in each.words for part in of_tasks)]


def test_a_suspended_job_holds_nothing_and_loses_nothing(place: Place, tmp_path: Path) -> None:
    job, diary = training(place, tmp_path), tmp_path / "diary"

    job.hook.control(job.id, "suspend", {"reason": "the day belongs to others"})

    status = job.until(JobState.SUSPENDED)
    assert status.message == "the day belongs to others; `airflow tony resume` resumes the job"
    assert settled(lambda: beside_the_master(job)) == []
    assert job.application().state is ApplicationState.RUNNING
    done = steps(diary)
    assert status.checkpoint is not None
    assert status.checkpoint.step == done[-1]  # what it saved when it was told to end counts as well
    assert done[-1] < STEPS
    if isinstance(place, YarnPlace):
        until(lambda: place.report(job.id)["runningContainers"] == 1, job.describe)
        assert place.report(job.id)["allocatedMB"] == 256

    (diary / "fast").touch()
    answer = job.hook.control(job.id, "resume", {"reason": "it is night"})

    assert answer == {"state": "SUSPENDED"}
    status = job.succeeded()
    assert steps(diary) == list(range(1, STEPS + 1))  # none twice
    assert status.model_dir is not None
    model = json.loads(read_text(job.hook.storage(), f"{status.model_dir}/weights.json"))
    assert model == {"step": STEPS, "chaos": weights(STEPS)}
    assert (status.generation, status.restarts, status.resumed_step) == (2, 0, done[-1])
    assert status.times is not None
    assert status.times.suspended > 0
    events = [event["event"] for event in job.events()]
    assert [each for each in events if each in ("suspending", "suspended", "resumed")] == [
        "suspending",
        "suspended",
        "resumed",
    ]
    assert_nothing_left(place, job)


@pytest.mark.long
def test_the_next_master_of_a_suspended_job_leaves_it_suspended(yarn: YarnPlace, tmp_path: Path) -> None:
    job, diary = training(yarn, tmp_path), tmp_path / "diary"
    job.hook.control(job.id, "suspend", {"reason": "the day belongs to others"})
    job.until(JobState.SUSPENDED)
    assert settled(lambda: beside_the_master(job)) == []

    os.kill(job.master().pid, signal.SIGKILL)

    status = until(
        lambda: status if (status := job.status()).am_attempt == 2 and status.state is JobState.SUSPENDED else None,
        job.describe,
    )
    assert beside_the_master(job) == []
    assert status.times is not None
    assert status.times.suspended > 0
    (diary / "fast").touch()
    job.hook.control(job.id, "resume", {"reason": "it is night"})
    job.succeeded()
    assert steps(diary) == list(range(1, STEPS + 1))
    assert_nothing_left(yarn, job)


@pytest.mark.long
def test_a_suspended_job_can_be_stopped(place: Place, tmp_path: Path) -> None:
    job = training(place, tmp_path)
    job.hook.control(job.id, "suspend", {"reason": "the day belongs to others"})
    job.until(JobState.SUSPENDED)

    job.hook.control(job.id, "stop", {"reason": "never mind"})

    assert "never mind" in job.end().diagnostics
    assert job.status().state is JobState.KILLED
    assert_nothing_left(place, job)


def test_a_job_outside_of_its_windows_holds_its_master_alone_and_goes_on_by_somebodys_word(local: LocalPlace) -> None:
    zone = "Asia/Tokyo"
    later = datetime.now(ZoneInfo(zone)) + timedelta(hours=12)
    job = local.submit(
        {
            "windows": {"zone": zone, "open": [f"{later:%a %H:%M}-{later + timedelta(minutes=1):%H:%M}"]},
            "timeouts": {"queue": "1s"},
            "tasks": {"worker": {"memory": "128MiB", "command": "true"}},
        }
    )
    status = job.until(JobState.SUSPENDED)
    assert status.message == (
        f"none of the job's windows is open; the next window opens {later:%a %H:%M} ({zone}); "
        "`airflow tony resume` resumes the job"
    )
    assert beside_the_master(job) == []

    job.hook.control(job.id, "resume", {"reason": "it cannot wait"})

    status = job.succeeded()
    assert status.generation == 1
    assert "requested" not in [event["event"] for event in job.events()][:2]
