"""Inputs on the job's store, from the submission to what is kept."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place
from tests.waiting import until
from tony_provider.cluster.errors import SourceMissing
from tony_provider.runtime.storage import uris

PROGRAM = """
import json
import tony_sdk

taken = []
for shard in tony_sdk.inputs("queued"):
    taken.append(shard.uri)
    with open(shard.path, "rb") as copy:
        assert len(copy.read()) == shard.size
    shard.done("made of " + shard.uri)
copied = [len(open(shard.path, "rb").read()) == shard.size for shard in tony_sdk.inputs("copied")]
assert copied and all(copied)
print(json.dumps({"part": [shard.uri for shard in tony_sdk.inputs("static")], "taken": taken}))
"""
COUNT = 12


def spec_of(paths: list[str]) -> dict[str, Any]:
    worker = {"instances": 2, "memory": "128MiB", "command": f"python3 -c '{PROGRAM}'"}
    return {
        "tasks": {"worker": worker},
        "inputs": {
            "static": {"paths": paths},
            "copied": {"paths": paths, "fetch": True},
            "queued": {"paths": paths, "deal": "queue", "fetch": True},
        },
    }


@pytest.fixture
def data(place: Place) -> str:
    """The URI of a directory on the store, with shards and what is none."""
    hook = place.hook()
    directory = uris.join(hook.layout.root, f"data-{uuid.uuid4().hex}")
    for number in range(COUNT):
        hook.storage().write(f"{directory}/part-{number:02}", b"x" * (number + 1))
    hook.storage().write(f"{directory}/_SUCCESS", b"")
    return directory


def test_shards_are_dealt_and_kept_with_the_result(place: Place, data: str) -> None:
    job = place.submit(spec_of([f"{data}/part-*"]))
    status = job.succeeded()
    expected = [f"{data}/part-{number:02}" for number in range(COUNT)]
    said = [job.said(f"worker:{index}") for index in range(2)]
    for key in ("part", "taken"):
        assert sorted(uri for each in said for uri in each[key]) == expected
    sizes = [sum(expected.index(uri) + 1 for uri in each["part"]) for each in said]
    assert max(sizes) - min(sizes) <= 1
    assert [(each.name, each.shards, each.committed) for each in status.inputs] == [
        ("static", COUNT, None),
        ("copied", COUNT, None),
        ("queued", COUNT, COUNT),
    ]
    listed = [json.loads(line) for line in job.read("inputs/queued.jsonl").splitlines()]
    assert [(each["uri"], each["size"]) for each in listed] == [(uri, index + 1) for index, uri in enumerate(expected)]
    logs = [name for name in job.files() if name.startswith("inputs/queued.commits/")]
    commits = [json.loads(line) for name in logs for line in job.read(name).splitlines()]
    assert sorted(each["shard"] for each in commits) == list(range(COUNT))
    assert all(each["outputs"] == [f"made of {expected[each['shard']]}"] for each in commits)
    assert_nothing_left(place, job)


def test_the_record_of_what_a_training_read(place: Place, data: str) -> None:
    program = f"tee {data.partition('://')[2]}/part-99 < /dev/null || true" if data.startswith("file") else "true"
    spec = spec_of([f"{data}/part-*"])
    spec["inputs"]["itself"] = {"paths": [f"{data}/part-*"], "deal": "none"}
    spec["tasks"]["worker"] |= {"instances": 1, "command": program}
    job = place.submit(spec)
    assert not [each for each in job.succeeded().warnings if "stale" in each]
    (report,) = job.hook.stale_models(model=f"{job.directory}/model")
    lineage = report.lineage
    assert lineage is not None
    assert lineage.application_id == job.id
    assert {name: each.files.files for name, each in lineage.inputs.items()} == dict.fromkeys(
        ("static", "copied", "queued", "itself"), COUNT
    )
    if data.startswith("file"):
        after = lineage.inputs["itself"].files_after
        assert after is not None
        assert after.files == COUNT + 1
        assert "some files changed during the training" in report.reason
    else:
        assert report.state.value == "current"
        assert len(json.loads(job.read("inputs/checksums.json"))) == COUNT


def test_an_input_that_is_not_there_is_told_before_anything_is_submitted(place: Place, data: str) -> None:
    with pytest.raises(SourceMissing) as caught:
        place.submit(spec_of([f"{data}/nothing-*"]))
    assert str(caught.value).count("matches no file") == 3
    assert "inputs.static.paths[0]" in str(caught.value)


DYING = """
import os
import pathlib
import signal
import time
import tony_sdk

marks, rank = pathlib.Path(os.environ["MARKS"]), os.environ["TONY_RANK"]
assert (marks / "prepared").exists()
for shard in tony_sdk.inputs("queued"):
    try:
        (marks / "died").touch(exist_ok=False)
    except FileExistsError:
        (marks / f"taken-{rank}").touch()
        while not (marks / "go").exists():
            time.sleep(0.05)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
    shard.done(f"by rank {rank}")
"""


@pytest.mark.long
def test_no_shard_is_lost_or_done_twice_when_a_process_and_an_executor_die(local: LocalPlace, tmp_path: Path) -> None:
    """Several processes in each container, more tasks than there is room for, and a type that runs before them."""
    marks, data = tmp_path / "marks", tmp_path / "data"
    for directory in (marks, data):
        directory.mkdir()
    for number in range(COUNT):
        (data / str(number)).write_text("x")
    local.extra.update(local_vcores=3, local_memory=8192)
    worker = {"instances": 4, "processes": 2, "memory": "1GiB", "command": f"exec python3 -c '{DYING}'"}
    job = local.submit(
        {
            "start": "first-come",
            "env": {"MARKS": str(marks)},
            "restart": {"backoff": 0},
            "tasks": {"prepare": {"memory": "1GiB", "command": 'touch "$MARKS/prepared"'}, "worker": worker},
            "inputs": {"queued": {"paths": [str(data)], "deal": "queue"}},
        }
    )
    until(lambda: (marks / "died").exists() and any(marks.glob("taken-*")), "one has died, another has a shard")
    executor = next(each for each in job.executors() if each.holds("worker:"))
    os.kill(executor.pid, signal.SIGKILL)
    (marks / "go").touch()
    status = job.succeeded()
    logs = [name for name in job.files() if name.startswith("inputs/queued.commits/")]
    commits = [json.loads(line) for name in logs for line in job.read(name).splitlines()]
    assert sorted(each["shard"] for each in commits) == list(range(COUNT))
    assert [each.committed for each in status.inputs] == [COUNT]
    assert_nothing_left(local, job)
