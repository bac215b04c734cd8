"""Locks on GPUs, between processes and users of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.runtime.executor.containers import REPOSITORY
from tony_provider.runtime.executor import gpus

_TAKE = """\
import os, sys, time
from tony_provider.runtime.executor import gpus
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
held = gpus.take_gpu_lock(sys.argv[1])
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
    first = gpus.take_gpu_lock(device)
    assert first
    assert gpus.take_gpu_lock(device) is None
    other = gpus.take_gpu_lock(device + "b")
    assert other, "another device"
    other.close()
    first.close()
    again = gpus.take_gpu_lock(device)
    assert again
    again.close()


def test_who_has_it(device: str) -> None:
    held = gpus.take_gpu_lock(device)
    assert held
    assert [line.split()[0] for line in gpus.gpu_lock_holders(device)] == [str(os.getpid())]
    held.close()
    assert gpus.gpu_lock_holders(device) == []


def test_a_killed_holder_has_it_no_more(device: str, processes: list[subprocess.Popen[str]]) -> None:
    assert _other(processes, device) == "taken"
    assert gpus.take_gpu_lock(device) is None
    assert gpus.gpu_lock_holders(device)[0].startswith(f"{processes[0].pid} (python")

    processes[0].send_signal(signal.SIGKILL)
    processes[0].wait()

    held = gpus.take_gpu_lock(device)
    assert held
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_between_users(device: str, processes: list[subprocess.Popen[str]]) -> None:
    assert _other(processes, device, "4001") == "taken"
    assert _other(processes, device, "4002") == "held by others"
    assert gpus.take_gpu_lock(device) is None, "nor for root"
    assert gpus.gpu_lock_holders(device) == ["user 4001"]


_STRANGER = """\
import os, socket, sys
os.setuid(4001)
held = []
for name in sys.argv[1:]:
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    held[-1].bind(b"\\0" + os.fsencode(name))
    held[-1].listen(0)
print("taken", flush=True)
sys.stdin.read()
"""


def _stranger(processes: list[subprocess.Popen[str]], *names: str) -> None:
    """Another user who listens at these names until this test ends."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _STRANGER, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    processes.append(process)
    assert process.stdout
    assert process.stdout.readline() == "taken\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_a_stranger_at_the_names_of_all_locks_can_be_disregarded_and_own_locks_cannot(
    device: str, processes: list[subprocess.Popen[str]]
) -> None:
    own = f"tony-gpu/0//{device}"
    _stranger(processes, f"tony-gpu/{device}", own.ljust(107, "/"), f"tony-gpu/4001//{device}".ljust(107, "/"))
    assert gpus.take_gpu_lock(device) is None
    held = gpus.take_gpu_lock(device, respect_others=False)
    assert held, "the lock of a stranger"
    assert gpus.take_gpu_lock(device, respect_others=False) is None, "the lock of another container of this user"
    assert _other(processes, device) == "held by others"
    assert [line.split()[0] for line in gpus.gpu_lock_holders(device)] == [str(os.getpid())]
    held.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_a_stranger_cannot_imitate_a_lock_that_this_user_holds(
    device: str, processes: list[subprocess.Popen[str]]
) -> None:
    """The kernel's table of sockets has names with their line breaks: a name can look like a further line of it."""
    with socket.socket() as ours:  # a socket whose number a stranger has read in the table of TCP
        ours.bind(("127.0.0.1", 0))
        inode = os.fstat(ours.fileno()).st_ino
        line = f"\n0000000000000000: 00000002 00000000 00010000 0001 01 {inode} @tony-gpu/0//0"
        short = f"\na: 1 1 10000 1 1 {inode} @tony-gpu/0//0".ljust(107, "/")
        _stranger(processes, line.ljust(107, "/"), short)
        held = gpus.take_gpu_lock("0", respect_others=False)
        assert held
        held.close()
