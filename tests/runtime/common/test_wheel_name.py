"""Names of wheels, held against what packaging makes of them."""

from __future__ import annotations

import pytest
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from tony_provider.runtime.common.python_packages import Version, WheelName, version_text

NAMES = [
    "numpy-2.3.1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "grpcio-1.76.0-cp39-cp39-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
    "cryptography-46.0.5-cp311-abi3-manylinux_2_34_x86_64.whl",
    "six-1.17.0-py2.py3-none-any.whl",
    "cowsay-6.1-py3-none-any.whl",
    "build_numbered-1.0-1-py3-none-any.whl",
    "nvidia_cublas_cu12-12.6.4.1-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "old-0.1-py2-none-any.whl",
    "newer-0.1-py311-none-any.whl",
    "plain-0.1-cp310-cp310-linux_x86_64.whl",
    "small-0.1-cp312-cp312-musllinux_1_2_x86_64.whl",
    "mac-0.1-cp312-cp312-macosx_11_0_arm64.whl",
]
PLATFORMS = {
    machine: [
        *(f"manylinux_2_{minor}_{machine}" for minor in range(40)),
        f"linux_{machine}",
        f"manylinux2014_{machine}",
    ]
    for machine in ("x86_64", "aarch64")
}


@pytest.mark.parametrize("version", [(3, 9), (3, 11), (3, 12), (3, 14)], ids=version_text)
@pytest.mark.parametrize("machine", PLATFORMS)
@pytest.mark.parametrize("name", NAMES)
def test_it_suits_whom_packaging_says(name: str, machine: str, version: Version) -> None:
    platforms = [*PLATFORMS[machine], f"musllinux_1_2_{machine}"]
    tags = {*cpython_tags(version, platforms=platforms), *compatible_tags(version, "cp312", platforms)}
    wheel = WheelName.parse(name)
    assert wheel is not None
    suits = wheel.suits_machine(machine) and wheel.suits_python(version)
    assert suits == bool(tags & parse_wheel_filename(name)[3])


@pytest.mark.parametrize("name", NAMES)
def test_project_and_version(name: str) -> None:
    wheel = WheelName.parse(name)
    project, version, *_ = parse_wheel_filename(name)
    assert wheel is not None
    assert (wheel.normalized, wheel.version) == (project, str(version))


@pytest.mark.parametrize("name", ["", "x.whl", "a-1.whl", "a-1-py3-none.whl", "a b-1-py3-none-any.whl", "a.zip"])
def test_what_is_no_wheels_name(name: str) -> None:
    assert WheelName.parse(name) is None
