"""Locks on GPUs, between processes and users of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.runtime.executor.containers import REPOSITORY
from tony_provider.runtime.executor.gpus import locks

_TAKE = """\
import os, sys, time
from tony_provider.runtime.executor.gpus import locks
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
held = locks.take(sys.argv[1])
print("taken" if held else "held by others", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def device() -> str:
    """One that nobody else on this machine has."""
    return f"GPU-{uuid.uuid4()}"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def _other(processes: list[subprocess.Popen[str]], *arguments: str) -> str:
    """What another process says that takes the lock, and then holds it."""
    command = [sys.executable, "-c", _TAKE, *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}
    )
    processes.append(process)
    assert process.stdout
    return process.stdout.readline().strip()


def test_one_at_a_time(device: str) -> None:
    first = locks.take(device)
    assert first
    assert locks.take(device) is None
    other = locks.take(device + "b")
    assert other, "another device"
    other.close()
    first.close()
    again = locks.take(device)
    assert again
    again.close()


def test_who_has_it(device: str) -> None:
    held = locks.take(device)
    assert held
    assert [line.split()[0] for line in locks.holders(device)] == [str(os.getpid())]
    held.close()
    assert locks.holders(device) == []


def test_a_killed_holder_has_it_no_more(device: str, processes: list[subprocess.Popen[str]]) -> None:
    assert _other(processes, device) == "taken"
    assert locks.take(device) is None
    assert locks.holders(device)[0].startswith(f"{processes[0].pid} (python")

    processes[0].send_signal(signal.SIGKILL)
    processes[0].wait()

    held = locks.take(device)
    assert held
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_between_users(device: str, processes: list[subprocess.Popen[str]]) -> None:
    assert _other(processes, device, "4001") == "taken"
    assert _other(processes, device, "4002") == "held by others"
    assert locks.take(device) is None, "nor for root"
    assert locks.holders(device)[0].startswith(f"{processes[0].pid} (python")
