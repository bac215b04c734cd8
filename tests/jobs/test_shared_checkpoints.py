"""``checkpoint.shared``: all tasks save into one directory, and find it again exactly."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import until
from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.parsing.parse import parse_job

# Each rank writes its shard of a step, and waits for those of all others: without a shared directory for ever.
PROGRAM = """
import os, pathlib, sys, time

wishes = pathlib.Path(sys.argv[1])
directory, rank = pathlib.Path(os.environ["TONY_CHECKPOINT_DIR"]), os.environ["TONY_RANK"]

def shards(step):
    return sorted(path.name for path in (directory / f"step-{step}").glob("rank-*"))

found = sorted(int(path.name[5:]) for path in directory.glob("step-*"))
step = found[-1] if found else 0
if step:
    assert shards(step) == ["rank-0", "rank-1"], shards(step)
    assert (directory / f"step-{step}" / f"rank-{rank}").read_text() == f"{rank} {step}"
with (wishes / f"starts-{rank}").open("a") as starts:
    print(step, directory, [path.name for path in sorted(directory.iterdir())], file=starts)
files = [wishes / f"starts-{each}" for each in range(2)]
while len({len(file.read_text().splitlines()) if file.exists() else 0 for file in files}) > 1:
    time.sleep(0.1)  # as all programs that save together meet first
step += 10
(directory / f"step-{step}").mkdir(exist_ok=True)
(directory / f"step-{step}" / f"rank-{rank}").write_text(f"{rank} {step}")
while len(shards(step)) < 2:
    time.sleep(0.1)
while not (wishes / "end").exists():
    time.sleep(0.1)
sys.exit(int((wishes / "end").read_text()))
"""


@pytest.fixture
def shared(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which that of the user is made; on YARN one that its connection names."""
    if isinstance(place, LocalPlace):
        return place.root / "cluster"
    mount = tmp_path_factory.mktemp("mount")
    mount.chmod(0o1777)
    place.extra["shared_dir"] = str(mount)
    return mount


def specification(wishes: Path) -> dict[str, Any]:
    command = f"exec python3 {wishes}/train.py {wishes}"
    return {
        "framework": "pytorch",
        "am": {"memory": "256MiB"},
        "timeouts": {"grace": "2s"},
        "restart": {"permanent_exit_codes": [3]},
        "checkpoint": {"shared": True},
        "tasks": {"worker": {"instances": 2, "memory": "128MiB", "command": command}},
    }


def starts(wishes: Path, rank: int) -> list[list[str]]:
    file = wishes / f"starts-{rank}"
    return [line.split(maxsplit=2) for line in file.read_text().splitlines()] if file.exists() else []


def saved(job: Job, wishes: Path, number: int) -> None:
    until(lambda: [len(starts(wishes, rank)) for rank in range(2)] == [number] * 2, job.describe)
    until(lambda: (point := job.status().checkpoint) is not None and point.save == number, job.describe)


@pytest.mark.long
def test_all_tasks_find_the_directory_as_it_was_at_the_last_snapshot(place: Place, wishes: Path, shared: Path) -> None:
    first = place.submit(specification(wishes))
    saved(first, wishes, 1)
    (left,) = shared.glob("tony-*/*/checkpoints")
    assert left.stat().st_mode & 0o777 == 0o700
    (left / "unfinished.tmp").write_text("")  # no snapshot holds it
    os.kill(first.executors()[0].pid, signal.SIGKILL)  # the leader's
    saved(first, wishes, 2)
    (wishes / "end").write_text("3")
    first.end()
    assert left.exists()

    (wishes / "end").unlink()
    (left / "step-10").rename(left / "step-99")
    request = SubmissionRequest(parse_job(specification(wishes)), first.identity)
    second = Job(first.hook, first.identity, first.hook.submit(request).application_id, place.log_folders)
    saved(second, wishes, 3)
    (wishes / "end").write_text("0")
    second.succeeded()

    found = starts(wishes, 0)
    assert found == starts(wishes, 1)
    assert [step for step, _, _ in found] == ["0", "10", "20"]
    assert {path for _, path, _ in found} == {str(left)}
    assert [names for _, _, names in found] == ["[]", "['step-10']", "['step-10', 'step-20']"]
    assert not left.exists()
    assert_nothing_left(place, second)


def test_without_a_shared_directory_the_job_is_refused(yarn: YarnPlace, wishes: Path) -> None:
    with pytest.raises(
        JobRejected, match=r"checkpoint\.shared: needs a file system that all nodes have mounted.*`shared_dir`"
    ):
        yarn.submit(specification(wishes))
