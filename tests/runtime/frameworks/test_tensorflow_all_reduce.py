"""Real TensorFlow processes find each other by what this code tells them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.runtime.frameworks.jobs import job_of
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.frameworks.generic import task_environment
from tony_provider.runtime.spec.model import Role

pytest.importorskip("tensorflow")

DEADLINE = 300  # seconds; it takes some fifteen on an idle machine
PROGRAM = Path(__file__).with_name("all_reduce.py")


def hold_port() -> socket.socket:
    """A port bound with SO_REUSEPORT and not listened on, as the executor holds it."""
    for port in range(20000, 32000):
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            with socket.socket() as probe:  # without the option, so that another's shared port is not taken for free
                probe.bind(("", port))
            held.bind(("", port))
        except OSError:
            held.close()
        else:
            return held
    raise OSError("no free port")


def test_two_workers_sum_over_ports_that_stay_held(tmp_path: Path) -> None:
    job = job_of(worker={"instances": 2})
    with ExitStack() as stack:
        held = [stack.enter_context(hold_port()) for _ in range(2)]
        cluster = ClusterSpec(
            1,
            tuple(
                TaskAddress("worker", index, Role.WORKER, "127.0.0.1", {"main": port.getsockname()[1]})
                for index, port in enumerate(held)
            ),
        )
        outputs = [tmp_path / f"worker-{index}.log" for index in range(2)]
        processes = []
        for index, output in enumerate(outputs):
            environment = task_environment(job, cluster, "worker", index)
            env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", **environment.env}
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                env=env,
                cwd=tmp_path,
                stdout=stack.enter_context(output.open("w")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        codes = [process.wait(DEADLINE) for process in processes]
    written = [output.read_text() for output in outputs]
    assert codes == [0, 0], "\n".join(written)
    assert all("replicas 2 sum 3.0" in text for text in written), "\n".join(written)
