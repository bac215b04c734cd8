"""PyTorch jobs that fail: the guilty rank of a deadlock, and the replay of one rank on this machine."""

from __future__ import annotations

import re
import uuid

import pytest

from tests.jobs.places import YarnPlace
from tests.jobs.test_replay import replay, traceback_in
from tests.kinds.environments import SYSTEM_PYTHON
from tests.kinds.training import spec, workers
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.storage import uris

STALL = 10  # seconds


def steps_in(output: str) -> list[str]:
    """What the program said before each of its steps."""
    return re.findall(r"^step .*$", output, re.MULTILINE)


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_a_deadlock_names_the_rank_that_the_others_wait_for(wide: YarnPlace) -> None:
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_deadlock.py", instances=4, memory="400MiB")
    limits = {"timeouts": {"stall": f"{STALL}s"}, "restart": {"budget": 0}}
    job = wide.run(spec("pytorch", "torch_deadlock.py", tasks, **limits))
    message = job.failed()
    failure = job.status().failure
    assert failure is not None
    assert (failure.kind, failure.task) == (FailureKind.STALLED, "worker:2")
    first, *stacks = message.splitlines()
    assert re.search(r'; worker:2 at File ".*torch_deadlock.py", line \d+ in fetch_batch, unlike 3 others$', first)
    assert stacks[0].startswith("worker:2 (process ")
    assert job.log("worker:2").count("waiting for a batch") == 1


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_a_rank_of_ddp_fails_again_alone(wide: YarnPlace) -> None:
    hook = wide.hook()
    directory = uris.join(hook.layout.root, f"rows-{uuid.uuid4().hex}")
    for number in range(60):
        hook.storage().write(f"{directory}/rows/part-{number:03}", b"1 2 3")
    for number in range(20):
        hook.storage().write(f"{directory}/poisoned/part-{number:03}", b"1 2 none" if number == 12 else b"1 2 3")
    tasks = workers(f"exec {SYSTEM_PYTHON} torch_poisoned.py", instances=4, memory="400MiB")
    queue = {"deal": "queue", "fetch": True}
    inputs = {name: {"paths": [f"{directory}/{name}"], **queue} for name in ("rows", "poisoned")}
    job = wide.run(spec("pytorch", "torch_poisoned.py", tasks, inputs=inputs, restart={"budget": 1}))
    job.failed()
    status = job.status()
    assert status.failure is not None
    assert status.failure.task == "worker:3"
    done = replay(job)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pytorch needs all 4 processes to begin, so this one runs alone" in done.stdout
    assert traceback_in(done.stderr) == traceback_in(job.log("worker:3"))
    steps = steps_in(done.stdout)
    assert steps
    assert steps == steps_in(job.log("worker:3"))[-len(steps) :]
    assert steps[-1].endswith(" takes part-012")
