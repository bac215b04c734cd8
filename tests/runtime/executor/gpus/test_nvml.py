"""What GPUs do, by a fake of NVML that is compiled here: this machine has no GPU."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import until
from tony_provider.runtime.executor.gpus import GpuMeter, Nvml, NvmlError
from tony_provider.runtime.executor.preflight import gpu_problems

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler, of Debian's gcc, is there")


@pytest.fixture(scope="module")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("fake-nvml") / "libnvidia-ml.so.1"
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=60)
    return str(library)


@needs_compiler
@pytest.mark.parametrize(
    ("names", "wanted", "use"),
    [
        ([], 2, {"gpu_percent": 65.0, "gpu_bytes": 3000}),
        (["1"], 1, {"gpu_percent": 90.0, "gpu_bytes": 2000}),
        (["0", "GPU-1"], 2, {"gpu_percent": 65.0, "gpu_bytes": 3000}),
        (["MIG-2"], 1, {"gpu_bytes": 3000}),
    ],
)
def test_a_fake_nvml_says_what_the_containers_own_gpus_do(
    fake_nvml: str, names: list[str], wanted: int, use: dict[str, float]
) -> None:
    assert Nvml(names, wanted, fake_nvml).use() == use


@needs_compiler
@pytest.mark.parametrize(
    ("names", "faults"),
    [
        (["0"], []),
        (["GPU-1"], ["GPU-1 needs a reset"]),
        (["MIG-3"], ["MIG-3 has had 6 uncorrected ECC errors"]),
        (["MIG-2"], ["MIG-2 could not remap a damaged row"]),
        (["0", "1"], ["GPU 1 needs a reset"]),
    ],
)
def test_a_fake_nvml_reports_damaged_memory(fake_nvml: str, names: list[str], faults: list[str]) -> None:
    found = list(Nvml(names, len(names), fake_nvml).faults())
    assert len(found) == len(faults)
    assert all(part in line for part, line in zip(faults, found, strict=True)), found


@needs_compiler
@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["0"], ""),
        (["1"], "GPU 1 needs a reset"),
        (["GPU-9"], "cannot be used: nvmlDeviceGetHandleByUUID failed"),
    ],
)
def test_the_preflight_reports_what_a_fake_nvml_finds(fake_nvml: str, names: list[str], found: str) -> None:
    assert found in "".join(gpu_problems(names, 1, partial(Nvml, library=fake_nvml)))


@needs_compiler
@pytest.mark.parametrize("wanted", [1, 3])  # a node with GPUs of other containers, and instances of one GPU
def test_unknown_gpus_of_a_fake_nvml_are_no_finding(fake_nvml: str, wanted: int) -> None:
    assert list(gpu_problems([], wanted, partial(Nvml, library=fake_nvml))) == []


def test_a_node_without_nvml_is_no_finding() -> None:
    assert list(gpu_problems([], 1, partial(Nvml, library="libnvidia-ml-that-is-not-there.so.1"))) == []


@needs_compiler
@pytest.mark.parametrize(
    ("xid", "card", "age", "reported"),
    [(79, "3b", 10.0, True), (79, "af", 10.0, False), (79, "3b", 7200.0, False), (31, "3b", 10.0, False)],
)
def test_errors_of_a_driver_in_a_file_instead_of_the_kernels_log(
    fake_nvml: str, tmp_path: Path, xid: int, card: str, age: float, reported: bool
) -> None:
    """Error 31 is a program's error, and card af is not in the container."""
    at = int((time.clock_gettime(time.CLOCK_MONOTONIC) - age) * 1e6)
    record = tmp_path / "kmsg"
    record.write_text(f"4,1723,{at},-;NVRM: Xid (PCI:0000:{card}:00): {xid}, pid=77, GPU has fallen off the bus.\n")
    found = list(gpu_problems(["0"], 1, partial(Nvml, library=fake_nvml), record))
    assert found == (["its GPU 0000:3b:00 had XID error 79"] if reported else [])
    assert list(gpu_problems(["0"], 1, partial(Nvml, library=fake_nvml), tmp_path / "missing")) == []


@needs_compiler
@pytest.mark.parametrize(
    ("names", "wanted", "why"),
    [
        ([], 1, "was given 1 GPUs but sees 2"),
        (["GPU-9"], 1, "nvmlDeviceGetHandleByUUID failed"),
        (["2"], 1, "nvmlDeviceGetHandleByIndex_v2 failed"),
    ],
)
def test_gpus_that_a_fake_nvml_cannot_tell_from_others(fake_nvml: str, names: list[str], wanted: int, why: str) -> None:
    with pytest.raises(NvmlError, match=why):
        Nvml(names, wanted, fake_nvml)


@pytest.mark.parametrize("library", ["libnvidia-ml-that-is-not-there.so.1", "libc.so.6"])
def test_a_node_without_nvml(library: str) -> None:
    with pytest.raises(NvmlError):
        Nvml([], 1, library)


def test_nobody_waits_for_a_fake_driver_that_hangs() -> None:
    hangs = threading.Event()

    def open_nvml() -> Nvml:
        hangs.wait()
        raise NvmlError("its test is over")

    meter = GpuMeter(open_nvml)
    assert [meter.take() for _ in range(3)] == [None, None, None]
    hangs.set()


@needs_compiler
def test_the_answer_of_a_fake_nvml_is_there_later(fake_nvml: str) -> None:
    meter = GpuMeter(lambda: Nvml([], 2, fake_nvml))
    found: list[dict[str, float] | None] = []

    def asked() -> bool:
        found.append(meter.take())
        return found[-1] is not None

    until(asked, "an answer")
    assert found[0] is None
    assert found[-1] == {"gpu_percent": 65.0, "gpu_bytes": 3000}
