"""The final weights of a training, and of the same program undisturbed and without any cluster."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from tests.hadoop.ports import free_ports

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 300  # that an undisturbed run may take
TOLERANCE = 1e-6  # between two weights that count as equal

WORKERS = (("worker", 0), ("worker", 1))
TASKS = {"served": (("chief", 0), ("ps", 0), ("worker", 0))}  # of programs that are no two workers; the first one ends
CHECKPOINT = {
    "train": "ckpt-{}",
    "served": "ckpt-{}",
    "count": "state-{}",
    "overwrite": "snapshot.npz",
}  # that a program makes after a step

Weights = dict[str, np.ndarray]


class ReferenceFailed(Exception):
    """The undisturbed run did not even end; the message holds its output."""


def load(files: dict[str, bytes]) -> Weights:
    """Of what a program left in its model directory, by file name."""
    ((name, content),) = files.items()
    if name == "weights.npz":
        with np.load(BytesIO(content)) as arrays:
            return dict(arrays)
    return {name: np.array(value) for name, value in json.loads(content).items()}


def difference(one: Weights, other: Weights) -> float:
    """The largest between two weights; infinite when they are not even of the same shapes."""
    if {name: array.shape for name, array in one.items()} != {name: array.shape for name, array in other.items()}:
        return float("inf")
    return max(float(np.max(np.abs(one[name] - other[name]))) for name in one)


@dataclass
class References:
    """Undisturbed runs, each made once for as long as the programs are the same.

    Plain processes that find each other on loopback.
    """

    folder: Path

    def weights(self, program: str, environment: dict[str, str], resume_at: tuple[int, ...] = ()) -> Weights:
        """Final weights of a run that ends after each of these steps and goes on from its checkpoint.

        ``environment``: the FAULTS_* variables that decide what is trained. Raises ReferenceFailed.
        """
        name = "-".join([program, *(f"{key}={environment[key]}" for key in sorted(environment)), *map(str, resume_at)])
        folder = self.folder / _fingerprint() / name
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut off
            checkpoint: Path | None = None
            for step in resume_at:
                checkpoint = _run(program, environment | {"FAULTS_STEPS": str(step)}, folder / f"to-{step}", checkpoint)
            _run(program, environment, folder / "end", checkpoint)
            (folder / "done").touch()
        return load({path.name: path.read_bytes() for path in (folder / "end" / "model-0").iterdir()})


def _fingerprint() -> str:
    """Of all programs."""
    digest = hashlib.sha256()
    for path in sorted(PROGRAMS.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _run(program: str, environment: dict[str, str], folder: Path, resume: Path | None) -> Path:
    """Run all tasks until the first has ended; its newest checkpoint."""
    (folder / "diary").mkdir(parents=True)
    tasks = TASKS.get(program, WORKERS)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(tasks))]
    running = [_start(program, environment, folder, resume, tasks, number, addresses) for number in range(len(tasks))]
    ends = running if tasks == WORKERS else running[:1]
    try:
        codes = [process.wait(SECONDS) for process in ends]
    finally:
        for process in running:
            process.kill()
            process.wait()
    if any(codes):
        said = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("output-*")))
        raise ReferenceFailed(f"the undisturbed run of {program} ended with {codes}:\n{said}")
    return folder / "checkpoints-0" / CHECKPOINT[program].format(environment["FAULTS_STEPS"])


def _start(
    program: str,
    environment: dict[str, str],
    folder: Path,
    resume: Path | None,
    tasks: Sequence[tuple[str, int]],
    number: int,
    addresses: Sequence[str],
) -> subprocess.Popen[bytes]:
    for name in ("model", "checkpoints"):
        (folder / f"{name}-{number}").mkdir()
    cluster: dict[str, list[str]] = {}
    for (task_type, _), address in zip(tasks, addresses, strict=True):
        cluster.setdefault(task_type, []).append(address)
    task_type, index = tasks[number]
    own = {
        "FAULTS_DIR": str(folder / "diary"),
        "TONY_TASK_TYPE": task_type,
        "TONY_TASK_INDEX": str(index),
        "TONY_MODEL_DIR": str(folder / f"model-{number}"),
        "TONY_CHECKPOINT_DIR": str(folder / f"checkpoints-{number}"),
        "TONY_METRICS_FILE": str(folder / f"metrics-{number}"),
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}}),
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": str(PROGRAMS.parents[2] / "tony_provider" / "runtime" / "sdk"),
    }
    if resume is not None:
        own |= {"TONY_RESUME_FROM": str(resume), "TONY_RESUME_STEP": resume.name.rpartition("-")[2]}
    with (folder / f"output-{number}").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{program}.py")],
            env={**os.environ, **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
