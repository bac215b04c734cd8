"""An absolute path in a checkpoint is valid after a restart in another container, and in the next try."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import Place
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.parsing.parse import parse_job

# A pointer file with an absolute path, as many libraries write it. Fails where the path leads to no file.
PROGRAM = """
import os, pathlib, sys, time

wishes = pathlib.Path(sys.argv[1])
directory = pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"])
pointer = directory / "last_checkpoint"
found = pathlib.Path(pointer.read_text()) if pointer.exists() else None
step = int(found.read_text()) if found else 0
with (wishes / "starts").open("a") as starts:
    print(step, directory, directory.resolve(), file=starts)
model = directory / f"model-{step + 40}.pt"
model.write_text(str(step + 40))
pointer.write_text(str(model))
while not (wishes / "end").exists():
    time.sleep(0.1)
sys.exit(int((wishes / "end").read_text()))
"""


def starts(wishes: Path) -> list[list[str]]:
    """Of every start of the program: the step that it has found, and the path of its directory, also without links."""
    file = wishes / "starts"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def saved(job: Job, wishes: Path, number: int) -> None:
    """Wait until what the start of this number has written is on the store."""
    until(lambda: len(starts(wishes)) == number, job.describe)
    until(lambda: sum(event["event"] == "checkpoint" for event in job.events()) > 0, job.describe)
    until(lambda: (point := job.status().checkpoint) is not None and point.save == number, job.describe)


def test_a_pointer_file_leads_to_its_file_in_each_container(place: Place, wishes: Path) -> None:
    command = f"exec python3 {wishes}/train.py {wishes}"
    spec: dict[str, Any] = {
        "framework": "standalone",
        "am": {"memory": "256MiB"},
        "timeouts": {"grace": "2s"},
        "restart": {"permanent_exit_codes": [3]},
        "tasks": {"worker": {"memory": "128MiB", "command": command}},
    }
    first = place.submit(spec)
    saved(first, wishes, 1)
    os.kill(first.executors()[0].pid, signal.SIGKILL)
    saved(first, wishes, 2)
    (wishes / "end").write_text("3")
    first.end()

    (wishes / "end").unlink()
    request = SubmissionRequest(parse_job(spec), first.identity)
    second = Job(first.hook, first.identity, first.hook.submit(request).application_id, place.log_folders)
    until(lambda: len(starts(wishes)) == 3, second.describe)
    (wishes / "end").write_text("0")
    second.succeeded()

    steps, paths, real = zip(*starts(wishes), strict=True)
    assert steps == ("0", "40", "80")
    assert len(set(paths)) == 1
    assert len(set(real)) == 3
    assert not os.path.lexists(Path(paths[0]).parent)
    assert_nothing_left(place, second)
