"""The directory whose ``python`` is a task's, once in a container."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.python.errors import PythonEnvError
from tony_provider.runtime.executor.python.shims import shims
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, node_directory


def python_bin(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> Path:
    """The directory whose ``python`` is the task's: its environment's, else one that leads to the image's or our own.

    Blocks; raises PythonEnvError, Cancelled, and OSError when the disk is full.
    """
    python_env = container.job.python_env_of(container.task_type)
    if python_env is None:
        path_of_image = None if container.image is None else container.environ.get("PATH", os.defpath)
        return shims(workspace.root / "bin", path_of_image)
    kind = kind_of(python_env)
    if kind is EnvironmentKind.DIRECTORY:
        return _bin_of(python_env, Path(node_directory(python_env)))
    unpacked = workspace.container / contract.PYTHON_ENV_DIR
    if not unpacked.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if kind is EnvironmentKind.ARCHIVE and not (unpacked / contract.ENVIRONMENT_FILE).exists():
        return _bin_of(python_env, unpacked)
    from tony_provider.runtime.executor.python.made_environment import made_bin  # with readers of archives: few need it

    return made_bin(container, workspace, python_env, kind, unpacked, cancelled)


def _bin_of(python_env: str, directory: Path) -> Path:
    if not directory.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if not os.access(directory / "bin" / "python", os.X_OK):
        raise PythonEnvError(f"python_env {python_env}: its bin/python is missing or cannot be run on this node")
    return directory / "bin"
