"""The final weights of a training, and of the same program undisturbed and without any cluster."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from tests.hadoop.ports import free_ports

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 300  # that an undisturbed run may take
TOLERANCE = 1e-6  # between two weights that count as equal

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

    Two workers that find each other on loopback, as plain processes.
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
    """Run both workers to the end; the newest checkpoint of the first."""
    ports = free_ports(2)
    (folder / "diary").mkdir(parents=True)
    workers = [_start(program, environment, folder, resume, index, ports) for index in (0, 1)]
    try:
        codes = [worker.wait(SECONDS) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    if codes != [0, 0]:
        said = "\n".join((folder / f"output-{index}").read_text()[-3000:] for index in (0, 1))
        raise ReferenceFailed(f"the undisturbed run of {program} ended with {codes}:\n{said}")
    step = environment["FAULTS_STEPS"]
    return folder / "checkpoints-0" / ({"train": f"ckpt-{step}", "count": f"state-{step}"}[program])


def _start(
    program: str, environment: dict[str, str], folder: Path, resume: Path | None, index: int, ports: list[int]
) -> subprocess.Popen[bytes]:
    for name in ("model", "checkpoints"):
        (folder / f"{name}-{index}").mkdir()
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    own = {
        "FAULTS_DIR": str(folder / "diary"),
        "FAULTS_PACE": "0",
        "TONY_TASK_TYPE": "worker",
        "TONY_TASK_INDEX": str(index),
        "TONY_MODEL_DIR": str(folder / f"model-{index}"),
        "TONY_CHECKPOINT_DIR": str(folder / f"checkpoints-{index}"),
        "TONY_METRICS_FILE": str(folder / f"metrics-{index}"),
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": str(PROGRAMS.parents[2] / "tony_provider" / "runtime" / "sdk"),
    }
    if resume is not None:
        own |= {"TONY_RESUME_FROM": str(resume), "TONY_RESUME_STEP": resume.name.rpartition("-")[2]}
    with (folder / f"output-{index}").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{program}.py")],
            env={**os.environ, **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
