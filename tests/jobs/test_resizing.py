"""A job that is resized while it trains: no step is lost, and none is done on other data."""

from __future__ import annotations

import json
import os
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.busy import fill
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.waiting import until
from tony_provider.cluster.resizing import NotResizable
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.helpers import read_text

SHARDS = 7
PRIME = (1 << 61) - 1
# Full-batch steps: each process adds up its own shards, rank 0 the sums. In whole numbers, of which the order does not
# matter. It saves when it is asked, and before it goes.
PROGRAM = f"""
import json, os, signal, socket, sys, time
from pathlib import Path
import tony_sdk

told_to_end = []
signal.signal(signal.SIGTERM, lambda *_: told_to_end.append(True))
diary, rank, size = Path(os.environ["DIARY"]), int(os.environ["TONY_RANK"]), int(os.environ["TONY_WORLD_SIZE"])
resume = os.environ.get("TONY_RESUME_FROM")
state = json.loads(Path(resume, "state.json").read_text()) if resume else {{"step": 0, "weight": 3}}
with open(os.environ["TONY_INPUT_DATA"]) as part:
    shards = [int(json.loads(line)["uri"].rpartition("-")[2]) for line in part]

def save():
    directory = Path(os.environ["TONY_CHECKPOINT_DIR"], f"state-{{state['step']}}")
    if not directory.exists():
        directory.mkdir()
        (directory / "state.json").write_text(json.dumps(state))
        tony_sdk.commit_checkpoint(state["step"], directory)

def leave():
    # The others are told to end, and so is this one in a moment.
    until = time.monotonic() + 20
    while not told_to_end and time.monotonic() < until:
        time.sleep(0.02)
    if rank == 0:
        save()
    sys.exit(143 if told_to_end else 1)

def mine():
    return [shards, sum(pow(state["weight"] + shard, 5, {PRIME}) for shard in shards)]

def lead(others):
    while not (diary / "enough").exists():
        if told_to_end:
            leave()
        parts = [mine()]
        for other in others:
            line = other.readline()
            if not line:
                leave()
            parts.append(json.loads(line))
        dealt = sorted(shard for part, _ in parts for shard in part)
        assert dealt == list(range({SHARDS})), dealt
        state["weight"] = (state["weight"] * 31 + sum(total for _, total in parts)) % {PRIME}
        state["step"] += 1
        with (diary / "steps").open("a") as file:
            file.write(f"{{state['step']}} {{size}}\\n")
        tony_sdk.report(step=state["step"])
        if tony_sdk.checkpoint_requested():
            save()
        for other in others:
            other.write(json.dumps(state) + "\\n")
            other.flush()
        time.sleep(0.1)
    for other in others:
        other.write("\\n")
        other.flush()
    Path(os.environ["TONY_MODEL_DIR"], "weights.json").write_text(json.dumps(state))

def follow(leader):
    while True:
        if told_to_end:
            leave()
        leader.write(json.dumps(mine()) + "\\n")
        leader.flush()
        line = leader.readline()
        if line == "\\n":
            return
        if not line:
            leave()
        state.update(json.loads(line))

host, _, port = os.environ["TONY_RENDEZVOUS"].rpartition(":")
address = host.strip("[]"), int(port)
try:
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(60)
            lead([server.accept()[0].makefile("rw") for _ in range(size - 1)])
    else:
        while True:
            try:
                connection = socket.create_connection(address)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        follow(connection.makefile("rw"))
except OSError:
    leave()
"""


def weight(steps: int) -> int:
    """Of a training that nobody has disturbed."""
    found = 3
    for _ in range(steps):
        found = (found * 31 + sum(pow(found + shard, 5, PRIME) for shard in range(SHARDS))) % PRIME
    return found


def training(place: Place, folder: Path, **task: Any) -> Job:
    program = folder / "train.py"
    program.write_text(PROGRAM)
    diary = folder / "diary"
    diary.mkdir()
    diary.chmod(0o777)
    hook = place.hook()
    data = uris.join(hook.layout.root, f"data-{folder.name}")
    for number in range(SHARDS):
        hook.storage().write(f"{data}/shard-{number}", b"x" * (number + 1))
    worker = {"instances": 2, "max_instances": 4, "memory": "128MiB", "command": "exec python3 train.py"}
    return place.submit(
        {
            "framework": "generic",
            "files": [str(program)],
            "env": {"DIARY": str(diary)},
            "inputs": {"data": {"paths": [data]}},
            "timeouts": {"grace": "30s"},
            "tasks": {"worker": {**worker, **task}},
        },
        hook=hook,
    )


def steps(folder: Path) -> list[tuple[int, int]]:
    """Each step that was done, and by how many."""
    file = folder / "diary" / "steps"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(step), int(size)) for step, size in (line.split() for line in lines)]


def until_steps(job: Job, folder: Path, size: int) -> None:
    """Wait until so many have done three steps together."""
    until(lambda: [by for _, by in steps(folder)[-3:]] == [size] * 3, job.describe)


def ends_as_if_undisturbed(job: Job, folder: Path) -> JobStatus:
    (folder / "diary" / "enough").touch()
    status = job.succeeded()
    done = [step for step, _ in steps(folder)]
    assert done == list(range(1, len(done) + 1))  # none twice
    assert status.model_dir is not None
    model = json.loads(read_text(job.hook.storage(), f"{status.model_dir}/weights.json"))
    assert model == {"step": len(done), "weight": weight(len(done))}
    return status


def test_from_two_to_four_and_back_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    job = training(place, tmp_path)
    until_steps(job, tmp_path, 2)

    answer = job.hook.resize(job.id, {"worker": 4}, "the night is free")
    assert answer == {"before": {"worker": 2}, "state": "RUNNING"}
    until_steps(job, tmp_path, 4)
    assert job.hook.resize(job.id, {"worker": 2}, "it is day")["before"] == {"worker": 4}
    until_steps(job, tmp_path, 2)

    status = ends_as_if_undisturbed(job, tmp_path)
    assert [size for size, _ in groupby(size for _, size in steps(tmp_path))] == [2, 4, 2]
    assert (status.generation, len(status.tasks), status.resizing) == (3, 2, {})
    told = [event for event in job.events() if event["event"] in ("resizing", "larger", "smaller", "resized")]
    assert [(event["event"], event["message"]) for event in told] == [
        ("resizing", "2 workers -> 4: the night is free"),
        ("larger", "there are to be 4 workers"),
        ("resized", "worker: there are 4"),
        ("resizing", "4 workers -> 2: it is day"),
        ("smaller", "going on without worker:2, worker:3"),
        ("resized", "worker: there are 2"),
    ]
    assert {"logs/worker-2.log", "logs/worker-3.log"} <= set(job.files())
    assert_nothing_left(place, job)


@pytest.mark.long
def test_resized_on_a_busy_queue_it_waits_for_room_and_trains_meanwhile(yarn: YarnPlace, tmp_path: Path) -> None:
    """The next master goes on with it, too."""
    memory = yarn.most_of_a_node // 3
    job = training(yarn, tmp_path, memory=f"{memory}MiB", instances=1, max_instances=3)
    until_steps(job, tmp_path, 1)
    busy = fill(yarn, memory)
    with pytest.raises(NotResizable, match="within 1 to 3"):
        job.hook.resize(job.id, {"worker": 9}, "too many")

    job.hook.resize(job.id, {"worker": 3}, "as soon as there is room")
    until(lambda: job.status().message.endswith("growing to 3 workers: waiting for 2 containers"), job.describe)
    os.kill(job.master().pid, signal.SIGKILL)
    until(lambda: job.status().am_attempt == 2 and job.status().state is JobState.RUNNING, job.describe)
    until_steps(job, tmp_path, 1)
    busy.hook.kill(busy.id, "others need it")
    until_steps(job, tmp_path, 3)
    job.hook.resize(job.id, {"worker": 1}, "others need it")
    until_steps(job, tmp_path, 1)

    ends_as_if_undisturbed(job, tmp_path)
    assert [size for size, _ in groupby(size for _, size in steps(tmp_path))] == [1, 3, 1]
    busy.end()
    assert_nothing_left(yarn, job)


def test_more_shards_than_tasks_are_wanted_for_the_largest_size(local: LocalPlace, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"7 shards for 8 tasks \(worker\); with a static deal each needs one"):
        training(local, tmp_path, max_instances=8)


@pytest.mark.long
def test_what_the_nodes_could_never_hold_is_refused_with_the_figures(yarn: YarnPlace, tmp_path: Path) -> None:
    most = yarn.nodes + 1
    job = training(yarn, tmp_path, memory=f"{yarn.most_of_a_node}MiB", instances=1, max_instances=most)
    until_steps(job, tmp_path, 1)
    with pytest.raises(NotResizable, match=f"worker={most} cannot be had on this cluster: .* room for {yarn.nodes}"):
        job.hook.resize(job.id, {"worker": most}, "one too many")
    assert job.status().resizing == {}
    assert "resizing" not in {event["event"] for event in job.events()}
    ends_as_if_undisturbed(job, tmp_path)
