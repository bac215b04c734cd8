"""A whole job on YARN whose application master and executors run with the oldest Python that the runtime supports."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.jobs.pythons import OLDEST, find_python
from tony_provider.runtime.common import contract

WORKER = f"""
import os, pathlib, zipfile
directory = pathlib.Path(os.environ["{contract.ENV_CHECKPOINT_DIR}"])
with zipfile.ZipFile(directory / "model.part", "w") as archive:
    archive.writestr("model/data.pkl", b"weights")
(directory / "model.part").rename(directory / "model-7.pt")
"""


def test_a_job_on_the_oldest_python(yarn: YarnPlace, tmp_path: Path) -> None:
    """Seen: gRPC did not recognise the master's handler as a coroutine function, and no executor could register.

    The runtime archive has no other Python, so the master and the executors run with this one. The job has what starts
    processes next to gRPC, or inspects sockets: a readiness probe, and a checkpoint of a known format.
    """
    python = find_python()
    if python is None:
        pytest.skip(f"there is no Python {OLDEST} on this machine")
    runtime = tmp_path / "tony-runtime.zip"
    build = ["tony", "runtime", "build", "--python", OLDEST, "--output", str(runtime)]
    done = subprocess.run([sys.executable, "-m", "airflow", *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yarn.extra |= {"runtime_archive": str(runtime), "python": str(python)}

    serve = f"exec {python} -m http.server $TONY_PORT"
    train = f"python -V; {python} -c {shlex.quote(WORKER)}"
    job = yarn.run(
        {
            "tasks": {
                "service": {"role": "sidecar", "memory": "128MiB", "command": serve, "ready": {"port": 0}},
                "worker": {
                    "after": {"service": "ready"},
                    "instances": 2,
                    "memory": "128MiB",
                    "command": train,
                },
            },
            "checkpoint": {},
        }
    )

    status = job.succeeded()
    assert {task.name for task in status.tasks} == {"service:0", "worker:0", "worker:1"}
    assert [f"Python {OLDEST}." in job.log(f"worker:{index}") for index in range(2)] == [True, True]
    assert "checkpoint" in [event["event"] for event in job.events()]
    assert_nothing_left(yarn, job)
