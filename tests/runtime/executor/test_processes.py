from __future__ import annotations

import os
import subprocess
import sys

from tony_provider.runtime.executor.processes import Process, UsageMeter, descendants


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
