"""Stragglers and input on real jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.advice.real.jobs import TASK, fit, ran, ran_again, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace
from tony_provider.advice.rules.pace import InputWait, Straggler

READS = """exec python3 -c "
import os, time
until = time.time() + 25
while time.time() < until:
    file = os.open('{}', os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    while time.time() < until and os.read(file, 4 << 20):
        time.sleep(0.05)
    os.close(file)
"
"""


@pytest.mark.long
def test_straggler(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    rule = Straggler()
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    slow = fit("--steps 220 --pace 0.1 --slow-rank 1", instances=3)
    together = fit(f"--steps 110 --pace 0.1 --slow-rank 1 --together {meeting}", instances=3)
    runs = submitted(local, slow, slow, labels=TASK)
    [synchronous] = submitted(local, together)
    advice = verdicts.told(rule, "one of three workers has twice as much to do, the second run", ran_again(runs))
    assert advice.evidence["task"] == "worker:1"
    assert advice.text.endswith("since it was also the slowest in 1 of 1 earlier runs")
    verdicts.silent(rule, "the same, and all wait for each other at each step", ran(synchronous))


@pytest.mark.long
def test_input_wait(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = InputWait()
    specs = [
        fit(f"--steps 200 {how}") for how in ("--read 0.08 --pace 0.02", "--decode 0.08 --pace 0.02", "--pace 0.1")
    ]
    reads, decodes, computes = map(ran, submitted(local, *specs))
    advice = verdicts.told(rule, "four fifths of a step are reading", reads)
    assert 0.5 < advice.evidence["input_wait"] < 0.95
    assert advice.change is None
    verdicts.told(rule, "four fifths of a step are decoding, by the one thread that trains", decodes)
    verdicts.silent(rule, "the data is there at once", computes)


@pytest.mark.long
def test_input_wait_that_nobody_reports(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    """A program that says nothing, and reads a file from the disk all the time."""
    data = tmp_path / "data"
    with data.open("wb") as file:
        for _ in range(256):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    reads = ran(local.submit({"tasks": {"worker": {"command": READS.format(data), "memory": "256MiB"}}}))
    if not sum(each.values.get("read_bytes", 0) for each in reads.history.samples):
        pytest.skip("what is read here comes from no disk")
    verdicts.told(InputWait(), "it reads 4 MiB, 20 times a second, and reports nothing", reads)
