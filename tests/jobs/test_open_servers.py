"""What a stranger gets from a TensorFlow server of a job, which authenticates no client: docs/platform/harden.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState

PROGRAMS = Path(__file__).parents[1] / "secure" / "programs"


@pytest.mark.long
def test_it_serves_files_to_anybody_and_the_token_file_is_none_of_them(local: LocalPlace, tmp_path: Path) -> None:
    """`make secure` has it between users of a cluster."""
    go = tmp_path / "go"
    command = f"({sys.executable} tensorflow_server.py &); until [ -e {go} ]; do sleep 0.1; done"
    job = local.submit(
        {
            "framework": "tensorflow",
            "files": [str(PROGRAMS / "tensorflow_server.py")],
            "env": {"CUDA_VISIBLE_DEVICES": "-1"},
            "tasks": {"worker": {"memory": "1GiB", "command": command}},
        }
    )
    job.until(JobState.RUNNING)
    served = until(lambda: next(local.root.rglob("serves"), None), job.describe)
    address = until(served.read_text, job.describe)

    asked = {"program": str(served.parent / "tensorflow_server.py"), "tokens": str(served.parent / "container_tokens")}
    attempts = "\n".join(f"{name}\tserved {address} {path}" for name, path in asked.items())
    stranger = subprocess.run(
        [sys.executable, str(PROGRAMS / "neighbour.py")],
        env={**os.environ, "ATTEMPTS": attempts},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    go.touch()
    job.succeeded()

    said = json.loads(stranger.stdout)
    assert said["program"].startswith("read "), "what remains: any file of the job's user"
    assert not said["program"].startswith("read 0 ")
    assert said["tokens"] == "refused: NotFoundError", stranger.stderr
