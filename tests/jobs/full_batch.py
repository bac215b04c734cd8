"""A training whose number of tasks may change at any step: each step is written down, and its result tells them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.jobs.job import Job
from tests.jobs.places import Place
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import read_text

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


def training(place: Place, folder: Path, *, job: dict[str, Any] | None = None, **task: Any) -> Job:
    """Of two tasks that may become four; ``task`` and ``job`` go over what is said of the type, and of the job."""
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
            **(job or {}),
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
