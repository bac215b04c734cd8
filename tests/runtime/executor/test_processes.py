from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.processes import (
    ContainerTable,
    Process,
    UsageMeter,
    container_processes,
    descendants,
    run_program,
)


def process(pid: int, *, started: int = 1, ticks: int = 0, rss: int = 0) -> Process:
    return Process(pid, 1, False, started, ticks, rss)


def test_descendants_are_found_with_their_memory() -> None:
    program = "import subprocess, sys; b = bytearray(50_000_000); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -c '{program}'; true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        found = descendants(os.getpid())
        below = descendants(shell.pid)
        shell.communicate(b"", timeout=30)
    assert shell.pid in found
    assert len(below) == 1
    assert set(below) < set(found)
    assert next(iter(below.values())).rss_bytes > 50_000_000


class Readings:
    """Counts the readings of each process in /proc."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: list[int] = []
        self._read = processes._read
        monkeypatch.setattr(processes, "_read", self.read)

    def read(self, pid: int) -> Process | None:
        self.pids.append(pid)
        return self._read(pid)


def test_processes_outside_the_container_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, table = Readings(monkeypatch), ContainerTable()
    table.read()
    assert os.getppid() in readings.pids
    readings.pids.clear()
    with subprocess.Popen(["sleep", "1000"]) as child:
        found = table.read()
        assert {os.getpid(), child.pid} <= set(found) & set(readings.pids)
        assert os.getppid() not in readings.pids
        child.kill()


def test_processes_are_read_again_when_the_kernel_may_have_assigned_their_pids_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings, table = Readings(monkeypatch), ContainerTable()
    table.read()
    readings.pids.clear()
    monkeypatch.setattr(processes, "_newest_pid", lambda: 1)
    table.read()
    assert os.getppid() in readings.pids


def test_a_process_whose_parent_has_just_ended_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent ended after the process was read, so the process seems to belong to nobody."""
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        child, table = int(shell.stdout.readline()), ContainerTable()
        with monkeypatch.context() as patched:
            readings = Readings(patched)
            patched.setattr(processes, "_read", lambda pid: None if pid == shell.pid else readings.read(pid))
            assert child not in table.read()
        assert child in table.read()
        assert set(table.read()) == set(container_processes())
        os.kill(child, 9)


def test_cpu_of_processes_that_come_and_go() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    meter = UsageMeter()
    assert meter.measure({1: process(1, ticks=500, rss=7), 2: process(2, rss=5)}, 10)["cpu_percent"] == 0
    # One second of process 1 in two, a new process that used half a second, and one of the same number as another's.
    usage = meter.measure(
        {
            1: process(1, ticks=500 + ticks, rss=7),
            2: process(2, started=9, ticks=ticks // 2),
            3: process(3, ticks=ticks // 2),
        },
        12,
    )
    assert usage == {"rss_bytes": 7, "cpu_percent": 100}
    assert meter.measure({}, 13)["cpu_percent"] == 0


def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    command = ["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"]
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(command, {"PATH": "/usr/bin:/bin"}, 0.5)
    child = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{child}").exists(), "its child has ended, too")


def test_the_output_and_the_variables_of_a_program() -> None:
    done = run_program(["/bin/sh", "-c", "echo $MORE; echo no >&2; exit 3"], {"MORE": "said"}, 60)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"said\n", b"no\n")
