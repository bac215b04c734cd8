"""Stragglers and input on real jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.advice.real.jobs import TASK, fit, ran, ran_again, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace
from tony_provider.advice.rules.input_wait import InputWait
from tony_provider.advice.rules.straggler import Straggler


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
    assert advice.text.endswith("since it was the slowest in 1 of 1 runs before, too")
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
