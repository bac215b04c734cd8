from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from tony_provider.runtime.executor.processes import Process, UsageMeter, descendants, run_program


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
