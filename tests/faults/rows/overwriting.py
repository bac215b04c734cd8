"""A program that overwrites one file and tells nobody a step, killed again and again at random moments."""

from __future__ import annotations

import random
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np

from tests.checkpoints import content
from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import OVERWRITE, row
from tests.faults.training import Training

HITS = 10
FEW_HITS = 2  # in `make test`
LONGEST = 4.0  # seconds from a start to the next hit; a look at the directory comes every 1.5 s
SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's PyTorch is its


@row("overwriting", "one file overwritten by NumPy: ranks killed twice at random moments", program=OVERWRITE)
def overwriting(field: Field) -> Account:
    return _killed_at_random(field, "numpy", "exec python overwrite.py", FEW_HITS, _step_of_numpy)


@row("overwriting-numpy", "one file overwritten by NumPy: ranks killed at ten random moments", program=OVERWRITE)
def overwriting_numpy(field: Field) -> Account:
    return _killed_at_random(field, "numpy", "exec python overwrite.py", HITS, _step_of_numpy)


@row("overwriting-torch", "one file overwritten by PyTorch: ranks killed at ten random moments", program=OVERWRITE)
def overwriting_torch(field: Field) -> Account:
    if subprocess.run([SYSTEM_PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        return Account(did="not run: there is no PyTorch", problems=["needs Debian's python3-torch"])
    return _killed_at_random(field, "torch", f"exec {SYSTEM_PYTHON} overwrite.py", HITS, _step_of_torch)


def _killed_at_random(field: Field, kind: str, command: str, hits: int, step_of: Callable[[bytes], int]) -> Account:
    seed = time.time_ns()
    moments = random.Random(seed)
    training = field.train(
        environment={"FAULTS_FORMAT": kind, "FAULTS_STEPS": "600", "FAULTS_EVERY": "2"},
        pace=0.2,
        tasks={"worker": {"instances": 2, "memory": "768MiB", "command": command}},
        restart={"backoff": "0s", "budget": 2 * hits},
        checkpoint={"keep": 1000, "after_success": "keep-all"},
    )
    for task in training.gang:
        training.until(lambda task=task: training.diary.entries("ready", task), f"{task} to be there")  # type: ignore[misc]
    for _ in range(hits):
        time.sleep(moments.uniform(0.0, LONGEST))
        with training.hit():
            training.kill(moments.choice(training.gang))
        for task in training.gang:
            training.until_restarted(task)
    training.hurry()
    account = training.finish()
    begun = list(_generations(training))
    account.did = f"{hits} times: went on from {[step for _, step, _ in begun]} (seed {seed})"
    account.expect(training.job.status().generation > hits, "it was not hit that often")
    storage = training.job.hook.storage()
    for newest, step, resume in begun:
        account.expect(resume == newest, f"generation at {step} went on from {resume}, and {newest} was committed last")
        if resume is not None:
            held = step_of(content(storage, resume)[_file(kind)])
            account.expect(held == step, f"{resume} holds step {held}, and the ranks began at {step}")
    return account


def _generations(training: Training) -> Iterator[tuple[str | None, int, str | None]]:
    """Of each but the first: what was committed last before it, where rank 0 began, and the URI that it was told.

    Those that were killed before rank 0 had looked are left out.
    """
    ready = {entry.generation: entry.step or 0 for entry in training.diary.entries("ready", training.leader)}
    newest: str | None = None
    for event in _events(training):
        data = event.get("data", {})
        if event["event"] == "checkpoint":
            newest = data["checkpoint"]["uri"]
        elif event["event"] == "rendezvous" and data["generation"] > 1 and data["generation"] in ready:
            yield newest, ready[data["generation"]], data["resume"] and data["resume"]["uri"]


def _events(training: Training) -> list[dict[str, Any]]:
    return training.job.events()


def _file(kind: str) -> str:
    return {"numpy": "snapshot.npz", "torch": "snapshot.pt"}[kind]


def _step_of_numpy(content: bytes) -> int:
    with np.load(BytesIO(content)) as arrays:
        return int(arrays["weights"][0])


def _step_of_torch(content: bytes) -> int:
    """The first storage of the archive, without PyTorch: this process is another Python's."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/data/0"))
        return int(np.frombuffer(archive.read(member))[0])
