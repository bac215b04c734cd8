"""Wheels of a job, unpacked into one directory of packages."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tony_provider.runtime import limited_process
from tony_provider.runtime.executor.python.running import Runner
from tony_provider.runtime.local import unpacking
from tony_provider.runtime.wheel_name import Version, WheelName

# Of a wheel's .data directory, what lies where: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
_PLACES = {"purelib": ".", "platlib": ".", "scripts": "bin", "data": "."}


def suit(wheels: Sequence[Path], version: Version, machine: str) -> bool:
    """Whether all are for this Python and machine."""
    names = [WheelName.parse(wheel.name) for wheel in wheels]
    return all(name is not None and name.suits_python(version) and name.suits_machine(machine) for name in names)


def unpack_wheels(wheels: Sequence[Path], directory: Path, runner: Runner) -> None:
    """Unpack them into a directory that is not there yet, within limits.

    Blocks; raises PythonEnvError, Cancelled, OSError.
    """
    directory.mkdir(parents=True)
    modules = limited_process.environment()["PYTHONPATH"]
    for wheel in wheels:
        command = limited_process.command(unpacking.__name__, str(wheel.resolve()), str(directory.absolute()))
        runner.output(command, wheel.name, PYTHONPATH=modules)
    for data in sorted(directory.glob("*.data")):
        for kind, place in _PLACES.items():
            if (data / kind).is_dir():
                shutil.copytree(data / kind, directory / place, dirs_exist_ok=True)
        shutil.rmtree(data)
