"""Which GPUs a node has. There is none here: the lists are as nvidia-smi prints them, by fakes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.executor.gpus.fake_nvidia_smi import fake_nvidia_smi
from tony_provider.runtime.executor import gpus
from tony_provider.runtime.executor.gpus import DevicesUnknownError

_WHOLE = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
GPU 1: Tesla V100 (PCIe) (UUID: GPU-27db0a8c-77e5-8ee6-ad05-f9a5c0eb7e3d)
"""
_CUT = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb Device 1: (UUID: MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/2/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-27db0a8c-77e5-8ee6-ad05-f9a5c0eb7e3d)
"""


def test_whole_gpus() -> None:
    assert gpus.parse_gpu_list(_WHOLE) == [
        "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77",
        "GPU-27db0a8c-77e5-8ee6-ad05-f9a5c0eb7e3d",
    ]


def test_of_a_gpu_that_is_cut_the_parts() -> None:
    assert gpus.parse_gpu_list(_CUT) == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/2/0",
        "GPU-27db0a8c-77e5-8ee6-ad05-f9a5c0eb7e3d",
    ]


def test_the_list_of_the_fake(tmp_path: Path) -> None:
    path = fake_nvidia_smi(tmp_path, ["GPU-a", "GPU-b"])
    assert gpus.node_gpus({"PATH": path}) == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo No devices were found; exit 6", r"nvidia-smi -L failed with exit code 6: No devices were found"),
        ("exit 9", "failed with exit code 9: no output"),
        ("echo nothing", "nvidia-smi -L lists no GPU"),
        ("kill -9 $$", "failed with exit code -9"),
    ],
)
def test_an_nvidia_smi_that_does_not_say(tmp_path: Path, script: str, said: str) -> None:
    path = fake_nvidia_smi(tmp_path, [], script=script)
    with pytest.raises(DevicesUnknownError, match=said):
        gpus.node_gpus({"PATH": path})


def test_a_node_without_nvidia_smi(tmp_path: Path) -> None:
    with pytest.raises(DevicesUnknownError, match=r"nvidia-smi, .*, is not on PATH; .* \(gpu_devices\)"):
        gpus.node_gpus({"PATH": str(tmp_path)})


def test_an_nvidia_smi_that_cannot_be_started(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    with pytest.raises(DevicesUnknownError, match="cannot be started"):
        gpus.node_gpus({"PATH": str(tmp_path)})
