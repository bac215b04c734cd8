"""Ways to start on real YARN: one type after the other, more tasks than fit, containers given back, shards dealt."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.kinds.table import Note
from tests.kinds.training import SECONDS, kill
from tests.waiting import until
from tony_provider.runtime.common import contract
from tony_provider.runtime.inputs.shards import read_log
from tony_provider.runtime.protocol.status import TaskState
from tony_provider.runtime.storage.base import read_text
from tony_provider.runtime.storage.uris import join

SCORE = """
import pathlib, sys, time
import tony_sdk

begun, scores = pathlib.Path(sys.argv[1]), pathlib.Path(tony_sdk.output("scores"))
for shard in tony_sdk.inputs("photos"):
    photo = pathlib.Path(shard.path)
    (begun / photo.name).touch()
    time.sleep(0.1)
    score = scores / photo.with_suffix(".txt").name
    score.write_text("score of " + photo.read_text())
    shard.done(str(score))
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that everybody may write to, as of a file system that all nodes have mounted."""
    tmp_path.chmod(0o777)
    return tmp_path


def running(place: YarnPlace, job: Job) -> int:
    """How many containers the ResourceManager says that the job has, its master's included."""
    return int(place.report(job.id)["runningContainers"])


@pytest.mark.long
def test_prepare_then_a_service_then_those_that_use_it(wide: YarnPlace, shared: Path, note: Note) -> None:
    tasks: dict[str, Any] = {
        "prepare": {"memory": "128MiB", "command": f"echo 42 > {shared}/answer"},
        "lookup": {
            "role": "sidecar",
            "memory": "256MiB",
            "command": f"cd {shared} && exec python3 -m http.server $TONY_PORT",
            "ready": {"port": 0},
        },
        "worker": {
            "instances": 2,
            "memory": "128MiB",
            "after": {"lookup": "ready"},
            "command": f"test $(cat {shared}/answer) = 42 && test $TONY_WORLD_SIZE = 2",
        },
    }
    job = wide.submit({"framework": "generic", "tasks": tasks, "restart": {"budget": 0}})

    job.end(SECONDS)
    job.succeeded()

    happened = [(event["event"], event.get("task")) for event in job.events()]
    first_worker = min(happened.index(("allocated", f"worker:{index}")) for index in range(2))
    assert happened.index(("over", "prepare:0")) < happened.index(("allocated", "lookup:0"))
    assert happened.index(("ready", "lookup:0")) < first_worker
    assert_nothing_left(wide, job)
    note("prepare, service, gang", job, "each began when it could")


@pytest.mark.long
def test_more_tasks_than_fit_and_some_that_fail(wide: YarnPlace, shared: Path, note: Note) -> None:
    command = f"touch {shared}/$TONY_RANK; test $TONY_RANK != 4"
    tasks = {"scorer": {"instances": 9, "memory": wide.most_of_a_node, "command": command, "restart": "never"}}
    job = wide.submit({"start": "first-come", "tolerated_failures": "12%", "tasks": tasks})

    job.end(SECONDS)
    status = job.succeeded()

    states = Counter(task.state for task in status.tasks)
    assert states == {TaskState.SUCCEEDED: 8, TaskState.FAILED: 1}
    assert "1 of 9 tasks failed, within tolerated_failures" in job.application().diagnostics
    assert_nothing_left(wide, job)
    note("first-come, 9 tasks, room for 3", job, "8 succeeded, 1 failure was tolerated")


@pytest.mark.long
def test_a_straggler_does_not_hold_the_others_containers(wide: YarnPlace, shared: Path, note: Note) -> None:
    command = f"test $TONY_RANK != 0 || until test -e {shared}/go; do sleep 0.2; done"
    job = wide.submit({"tasks": {"worker": {"instances": 6, "memory": "256MiB", "command": command}}})
    until(lambda: running(wide, job) == 7, job.describe, SECONDS)
    until(lambda: running(wide, job) == 2, job.describe, SECONDS)  # the master and the straggler
    (shared / "go").touch()
    job.succeeded()
    assert_nothing_left(wide, job)
    note("6 tasks, one straggler", job, "5 containers were given back before the end")


@pytest.mark.long
def test_two_hundred_shards_each_once(wide: YarnPlace, shared: Path, note: Note) -> None:
    """Room for three; one of them is killed, and so is the master. What they read and what they make is on HDFS."""
    hook = wide.hook()
    directory = join(hook.layout.root, f"photos-{shared.name}")
    photos, scores = join(directory, "new"), join(directory, "scores")
    for number in range(200):
        hook.storage().write(join(photos, f"{number:03}.jpg"), str(number).encode())
    begun = shared / "begun"
    begun.mkdir()
    begun.chmod(0o777)
    (shared / "score.py").write_text(SCORE)
    tasks = {
        "scorer": {"instances": 3, "memory": wide.most_of_a_node, "command": f"exec python3 {shared}/score.py {begun}"}
    }
    inputs = {"photos": {"paths": [photos], "deal": "queue", "fetch": True}}
    outputs = {"scores": {"path": scores, "layout": "flat", "tasks": ["scorer"]}}
    job = wide.submit({"start": "first-come", "inputs": inputs, "outputs": outputs, "tasks": tasks})
    until(lambda: len(list(begun.iterdir())) >= 40, job.describe, SECONDS)
    kill(job, "score.py " + str(begun), "scorer:1")
    until(lambda: len(list(begun.iterdir())) >= 80, job.describe, SECONDS)
    os.kill(job.master().pid, signal.SIGKILL)
    assert not hook.storage().exists(scores)

    job.end(SECONDS)
    status = job.succeeded()

    assert status.am_attempt == 2
    settled = list(read_log(job.hook.storage(), join(job.directory, contract.INPUTS_DIR, "photos.commits")))
    assert Counter(each.shard for each in settled) == Counter(range(200))
    assert not any(each.failed for each in settled)
    made = {each.name: read_text(job.hook.storage(), each.path) for each in job.hook.storage().list(scores)}
    del made["_SUCCESS"]
    assert made == {f"{number:03}.txt": f"score of {number}" for number in range(200)}
    assert_nothing_left(wide, job)
    note("200 shards, room for 3", job, "each committed once, and what was made of it", "a scorer, the master")
