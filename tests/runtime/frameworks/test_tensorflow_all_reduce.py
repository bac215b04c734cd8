"""Real TensorFlow processes find each other by what this code tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.runtime.frameworks.jobs import job_of
from tony_provider.runtime.executor.ports import HeldPorts
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress, get_framework, task_environment
from tony_provider.runtime.jobspec.model import Role

pytest.importorskip("tensorflow")

DEADLINE = 300  # seconds; it takes some fifteen on an idle machine
PROGRAM = Path(__file__).with_name("all_reduce.py")


def test_two_workers_sum_over_ports_that_stay_held(tmp_path: Path) -> None:
    job = job_of(worker={"instances": 2})
    with ExitStack() as stack:
        framework = get_framework("tensorflow")
        names = framework.ports("worker", Role.WORKER)
        held = [HeldPorts(names, job.port_range, share=framework.shares_ports(Role.WORKER)) for _ in range(2)]
        cluster = ClusterSpec(
            1,
            tuple(
                TaskAddress("worker", index, Role.WORKER, "127.0.0.1", ports.numbers)
                for index, ports in enumerate(held)
            ),
        )
        for ports in held:
            stack.callback(ports.close)
            ports.release()
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
