"""Processors on real jobs. GPUs are simulated: there is none here, and a fake of NVML says how busy they are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.advice.real.jobs import Ran, fit, ran, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace
from tests.runtime.executor.gpus.test_nvml import COMPILER, needs_compiler
from tony_provider.advice.rules.idle_processors import GpusIdle, VcoresIdle

SOURCE = Path(__file__).with_name("fake_nvml.c")
STEPS = 400  # of a tenth of a second: what is sustained is that over half a minute
WAITS = "--steps 80 --pace 0.1"


@pytest.mark.long
def test_vcores_idle(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = VcoresIdle(least_seconds=5.0, most_crowded=101.0)  # whatever else runs on this machine
    local.extra.update(local_vcores=8)
    waits, computes = fit(f"--steps {STEPS} --pace 0.1", vcores=4), fit(f"--steps {STEPS} --decode 0.1", vcores=1)
    idle, busy = map(ran, submitted(local, waits, computes))
    advice = verdicts.told(rule, "4 vcores, a program that mostly waits", idle)
    assert advice.change == {"tasks": {"worker": {"vcores": 1}}}
    verdicts.silent(rule, "1 vcore, a program that computes all the time", busy)
    assert advice.evidence["crowded_percent"] is not None
    verdicts.silent(VcoresIdle(least_seconds=5.0, most_crowded=0.0), "4 vcores, on a node that counts as full", idle)
    verdicts.silent(VcoresIdle(), "4 vcores, a program that mostly waits, for less than 5 minutes", idle)


@pytest.mark.long
@needs_compiler
def test_gpus_idle(local: LocalPlace, verdicts: Verdicts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated GPUs."""
    rule = GpusIdle(least_seconds=5.0)
    local.extra.update(local_gpus=4)

    def simulated(percent: int, **more: Any) -> Ran:
        folder = tmp_path / f"busy-{percent}"
        folder.mkdir(exist_ok=True)
        macros = ["-DGPUS=4", f"-DPERCENT={percent}"]
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([COMPILER or "cc", "-shared", "-fPIC", *macros, "-o", library, SOURCE], check=True, timeout=60)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
        return ran(local.submit(fit(WAITS, gpus=4, **more)))

    fewer = verdicts.told(rule, "4 GPUs (simulated), busy for 18 %, one process", simulated(18))
    assert fewer.change == {"tasks": {"worker": {"gpus": 1}}}
    assert fewer.evidence["mean_gpu_percent"] == 18.0
    bigger = verdicts.told(
        rule, "4 GPUs (simulated), busy for 18 %, a process for each", simulated(18, processes="gpus")
    )
    assert bigger.change is None
    unused = verdicts.told(rule, "4 GPUs (simulated), of which none is used", simulated(0))
    assert unused.change == {"tasks": {"worker": {"gpus": 0}}}
    verdicts.silent(rule, "4 GPUs (simulated), busy for 85 %", simulated(85))
