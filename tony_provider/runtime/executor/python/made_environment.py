"""The virtual environment of a task: made of what its container got, for each kind that is no directory as it is.

Imported where one is made: archives and their readers are nothing that most executors need.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.environment_record import EnvironmentRecord
from tony_provider.runtime.executor.environment import node_environment
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.python import wheels
from tony_provider.runtime.executor.python.errors import PythonEnvError
from tony_provider.runtime.executor.python.node_python import NodePython, node_pythons
from tony_provider.runtime.executor.python.pex import unpacked_pex
from tony_provider.runtime.executor.python.running import Runner
from tony_provider.runtime.executor.python.virtual_environment import VirtualEnvironment
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.spec.model import PythonEnv
from tony_provider.runtime.spec.python_env import PEX_ENDING, WHEEL_ENDING, EnvironmentKind
from tony_provider.runtime.wheel_name import version_text


def made_bin(
    container: ExecutorContainer,
    workspace: Workspace,
    python_env: PythonEnv,
    kind: Optional[EnvironmentKind],
    files: Path,
    cancelled: threading.Event,
) -> Path:
    """The ``bin`` of the environment, which is made where it is not there yet. ``files``: what the container got.

    Blocks; raises PythonEnvError, Cancelled, and OSError when the disk is full.
    """
    made = VirtualEnvironment(workspace.python)
    if not made.is_there:
        shutil.rmtree(workspace.python, ignore_errors=True)  # of a preparation that was cut short
        _MAKERS[kind](_Making(container, workspace, python_env, files, made, _runner(container, workspace, cancelled)))
    return made.bin


@attrs.frozen
class _Making:
    """What the maker of a kind works with."""

    container: ExecutorContainer
    workspace: Workspace
    python_env: PythonEnv
    files: Path  # what the container got for it
    made: VirtualEnvironment
    runner: Runner

    def first_python(self, suits: Callable[[NodePython], bool], wanted: str) -> NodePython:
        """The first of the node's Pythons that suits. Raises PythonEnvError."""
        seen = []
        for each in node_pythons(self.container.environ, self.runner):
            if suits(each):
                return each
            seen.append(f"{each.executable} ({version_text(each.version)})")
        raise PythonEnvError(
            f"python_env {self.python_env}: it needs {wanted}, and this node ({os.uname().machine}) has "
            f"{', '.join(seen) or 'no Python'}"
        )


def _runner(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> Runner:
    environ = {
        **node_environment(container),
        "HOME": str(workspace.home),
        "TMPDIR": workspace.tmpdir,
        contract.ENV_CONTAINER: container.identity.container_id,  # what the guard knows its processes by
    }
    environ.setdefault("PATH", os.defpath)
    return Runner(environ, cancelled)


def _make_of_packages(making: _Making) -> None:
    """An archive of `airflow tony env build`: packages, for a Python that the nodes have."""
    record = making.files / contract.ENVIRONMENT_FILE
    try:
        version = load_json(record.read_bytes(), EnvironmentRecord).python_version
    except CodecError as error:
        raise PythonEnvError(f"python_env {making.python_env}: its {record.name} cannot be read: {error}") from error
    python = making.first_python(lambda each: each.version == version, f"Python {version_text(version)}")
    making.made.make(python, [making.files.resolve()])


def _make_of_pex(making: _Making) -> None:
    pex = _named(making, PEX_ENDING)[0]
    python = unpacked_pex(pex, making.workspace.root / "pex", making.container.environ, making.runner)
    making.made.make(python, python.packages)


def _make_of_wheels(making: _Making) -> None:
    """Over what the node's Python has."""
    found = _named(making, WHEEL_ENDING)
    machine = os.uname().machine
    wanted = f"a Python that suits {', '.join(wheel.name for wheel in found)}"
    python = making.first_python(lambda each: wheels.suit(found, each.version, machine), wanted)
    packages = making.workspace.root / "wheels"
    shutil.rmtree(packages, ignore_errors=True)
    wheels.unpack_wheels(found, packages, making.runner)
    making.made.make(python, [packages], python.packages)


_MAKERS: dict[object, Callable[[_Making], None]] = {
    EnvironmentKind.ARCHIVE: _make_of_packages,
    EnvironmentKind.PEX: _make_of_pex,
    EnvironmentKind.WHEELS: _make_of_wheels,
}


def _named(making: _Making, ending: str) -> Sequence[Path]:
    found = sorted(file for file in making.files.iterdir() if file.name.lower().endswith(ending))
    if not found:
        raise PythonEnvError(f"python_env {making.python_env}: there is no file {ending} in this container")
    return found
