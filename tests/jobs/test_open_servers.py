"""What a stranger gets from a TensorFlow server of a job, which asks nobody for a proof. See docs/security.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState

SERVER = """
import os, time, pathlib
import tensorflow as tf

server = tf.distribute.Server({"local": [os.environ["TONY_RENDEZVOUS"]]}, config=None, protocol="grpc")
pathlib.Path("serves").write_text(os.environ["TONY_RENDEZVOUS"])
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.1)
"""
STRANGER = """
import sys
import tensorflow as tf

address, *paths = sys.argv[1:]
tf.config.experimental_connect_to_host(address, job_name="local")
for path in paths:
    with tf.device("/job:local/task:0/device:CPU:0"):
        try:
            print(len(tf.io.read_file(path).numpy()))
        except tf.errors.OpError as error:
            print(type(error).__name__)
"""


@pytest.mark.long
def test_it_serves_files_to_anybody_and_the_token_file_is_none_of_them(local: LocalPlace, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    go = tmp_path / "go"
    job = local.submit(
        {
            "framework": "tensorflow",
            "files": [str(tmp_path / "server.py")],
            "env": {"GO": str(go), "CUDA_VISIBLE_DEVICES": "-1"},
            "tasks": {"worker": {"memory": "1GiB", "command": f"{sys.executable} server.py"}},
        }
    )
    job.until(JobState.RUNNING)
    served = until(lambda: next(local.root.rglob("serves"), None), job.describe)
    address = until(served.read_text, job.describe)
    (description, *_) = served.parent.rglob("tony-application.json")

    asked = [str(description), str(served.parent / "container_tokens")]
    stranger = subprocess.run(
        [sys.executable, "-c", STRANGER, address, *asked], capture_output=True, text=True, timeout=120, check=False
    )
    go.touch()
    job.succeeded()

    read, token_file = stranger.stdout.split()
    assert int(read) > 0, "what remains: any file of the job's user"
    assert token_file == "NotFoundError", stranger.stderr
