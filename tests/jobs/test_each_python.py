"""A whole job on YARN whose application master and executors run with each Python that the runtime supports."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.jobs.pythons import EVERY, OLDEST, OWN, find_python
from tony_provider.runtime.common import contract

WORKER = f"""
import os, pathlib, zipfile
directory = pathlib.Path(os.environ["{contract.ENV_CHECKPOINT_DIR}"])
with zipfile.ZipFile(directory / "model.part", "w") as archive:
    archive.writestr("model/data.pkl", b"weights")
(directory / "model.part").rename(directory / "model-7.pt")
"""


@pytest.mark.parametrize(
    "version",
    [pytest.param(each, marks=[] if each == OLDEST else pytest.mark.long) for each in EVERY if each != OWN],
)
def test_a_job_of_all_roles_on_another_python(yarn: YarnPlace, tmp_path: Path, version: str) -> None:
    """Seen: gRPC did not recognise the master's handler as a coroutine function, and no executor could register.

    The runtime archive has no other Python, so the master and the executors run with this one. The job has what starts
    processes next to gRPC, or inspects sockets: a readiness probe, and a checkpoint of a known format.
    """
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    runtime = tmp_path / "tony-runtime.zip"
    build = ["tony", "runtime", "build", "--python", version, "--output", str(runtime)]
    done = subprocess.run([sys.executable, "-m", "airflow", *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yarn.extra |= {"runtime_archive": str(runtime), "python": str(python)}

    serve = f"exec {python} -m http.server $TONY_PORT"
    train = f"python -V; {python} -c {shlex.quote(WORKER)}"
    after, size = {"service": "ready"}, {"memory": "128MiB"}
    job = yarn.run(
        {
            "framework": "tensorflow",
            "tasks": {
                "service": {"role": "sidecar", "command": serve, "ready": {"port": 0}, **size},
                "chief": {"after": after, "command": train, **size},
                "worker": {"after": after, "instances": 2, "command": train, **size},
                "ps": {"after": after, "command": "python -V; sleep 1000", **size},
                "evaluator": {"after": after, "command": "python -V; sleep 1000", **size},
            },
            "success": "all",
            "timeouts": {"grace": "2s", "evaluator": "1s"},
            "checkpoint": {},
        }
    )

    status = job.succeeded()
    gang = {"chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0"}
    assert {task.name for task in status.tasks} == {"service:0", *gang}
    assert {name for name in gang if f"Python {version}." in job.log(name)} == gang
    assert "checkpoint" in [event["event"] for event in job.events()]
    assert_nothing_left(yarn, job)
