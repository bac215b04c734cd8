"""Environment variables of user processes, and the directory of the Python that they run."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.jobspec.container_content import EnvironmentKind, node_directory, python_env_kind
from tony_provider.runtime.storage import uris


class PythonEnvError(Exception):
    """The job's Python environment is not on this node, or cannot be used here."""


_NAMES = ("python3", "python")


def write_shims(directory: Path, path_of_image: Optional[str]) -> Path:
    """Write scripts for ``python`` and ``python3``, unless the image has these programs. Return ``directory``.

    ``path_of_image``: the PATH of an image, whose Pythons have precedence, or None for a plain process. Blocks. Raises
    OSError.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    of_image = {name: shutil.which(name, path=path_of_image) for name in _NAMES} if path_of_image is not None else {}
    target = next(filter(None, of_image.values()), sys.executable)
    quoted = "'" + target.replace("'", "'\\''") + "'"
    for name in (each for each in _NAMES if not of_image.get(each)):
        shim = directory / name
        shim.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        shim.chmod(0o700)
    return directory


def python_bin(container: ExecutorContainer, workspace: Workspace, cancelled: threading.Event) -> Path:
    """Return the directory with the task's ``python``.

    That is the Python of the task's environment, otherwise a script for the image's Python or ours. Blocks. Raises
    PythonEnvError, Cancelled, and OSError if the disk is full.
    """
    python_env = container.job.python_env_of(container.task_type)
    if python_env is None:
        path_of_image = None if container.image is None else container.environ.get("PATH", os.defpath)
        return write_shims(workspace.root / "bin", path_of_image)
    kind = python_env_kind(python_env)
    if kind is EnvironmentKind.DIRECTORY:
        return _bin_of(python_env, Path(node_directory(python_env)))
    unpacked = workspace.container / contract.PYTHON_ENV_DIR
    if not unpacked.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if kind is EnvironmentKind.ARCHIVE and not (unpacked / contract.ENVIRONMENT_FILE).exists():
        return _bin_of(python_env, unpacked)
    from tony_provider.runtime.executor.virtual_environment import (
        virtual_environment_bin,  # with readers of archives: few jobs need it
    )

    return virtual_environment_bin(container, workspace, python_env, kind, unpacked, cancelled)


def _bin_of(python_env: str, directory: Path) -> Path:
    if not directory.is_dir():
        raise PythonEnvError(f"python_env: there is no directory {python_env} on this node")
    if not os.access(directory / "bin" / "python", os.X_OK):
        raise PythonEnvError(f"python_env {python_env}: its bin/python is missing or cannot be run on this node")
    return directory / "bin"


_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The token file holds the keys of the executor's connection. HadoopAccess writes another one if the job requests it.
_OWN = frozenset(
    {
        contract.ENV_TOKEN_FILE,
        contract.ENV_CONTAINER_ID,  # libraries such as Spark infer from it that all other variables exist
        contract.ENV_NODE_HOST,
        contract.ENV_NODE_PORT,
        contract.ENV_LOCAL_DIRS,
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "XDG_RUNTIME_DIR",
    }
)


def user_environment(
    container: ExecutorContainer,
    workspace: Workspace,
    cluster: Mapping[str, str],
    resumed: Optional[Resumed],
    python_bin: Path,
) -> dict[str, str]:
    """Return the environment variables of a user process.

    ``cluster``: the variables of the rendezvous, the framework and Hadoop. ``resumed``: the checkpoint to resume from.
    Later sources override earlier ones: the node, our directories, Airflow's variables, the cluster, the job's ``env``,
    the task type's ``env``, the user's secrets. The TONY_* variables of the contract override all of them.
    """
    env = {
        **node_environment(container),
        **_places(workspace),
        "PYTHONUNBUFFERED": "1",  # so that the last lines before a kill are not lost
        "PYTHONFAULTHANDLER": "1",  # so that a crash in a library prints its location
        **container.description.environment,
        **cluster,
        **container.job.env,
        **container.spec.env,
        **container.user_secrets,
        **_contract(container, workspace, resumed, is_leader=cluster.get(contract.ENV_RANK) == "0"),
        **{name: value for name, value in cluster.items() if name.startswith(contract.OWN_ENV_PREFIX)},
    }
    env["PATH"] = os.pathsep.join([str(python_bin), env.get("PATH") or _DEFAULT_PATH])
    # The directory of a script is its link's target, in the node's cache. Modules next to it are in the container.
    env["PYTHONPATH"] = os.pathsep.join(
        [*filter(None, [env.get("PYTHONPATH")]), str(workspace.container), str(workspace.sdk)]
    )
    return env


def node_environment(container: ExecutorContainer) -> dict[str, str]:
    """Return the variables of the node, without those of the executor."""
    hidden = _OWN if container.job.hadoop else _OWN | {contract.ENV_TICKET}
    return {
        name: value
        for name, value in container.environ.items()
        if name not in hidden and not name.startswith(contract.OWN_ENV_PREFIX)
    }


def _places(workspace: Workspace) -> dict[str, str]:
    home = workspace.home
    return {
        "HOME": str(home),
        "TMPDIR": workspace.tmpdir,
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PWD": str(workspace.container),
    }


def _contract(
    container: ExecutorContainer, workspace: Workspace, resumed: Optional[Resumed], *, is_leader: bool
) -> dict[str, str]:
    """Return the TONY_* variables. ``is_leader``: the model of this process is the job's."""
    env = {
        contract.ENV_APPLICATION_ID: container.identity.application_id,
        contract.ENV_CONTAINER: container.identity.container_id,  # by which the guard finds the processes
        contract.ENV_ATTEMPT: str(container.identity.attempt),
        contract.ENV_METRICS_FILE: str(workspace.metrics_file),
        contract.ENV_MODEL_DIR: str(workspace.model),
        contract.ENV_RESULT_FILE: str(workspace.result_file),
        contract.ENV_CHECKPOINT_REQUEST: str(workspace.checkpoint_request),
        contract.ENV_TENSORBOARD_DIR: str(workspace.tensorboard),
    }
    if is_leader:
        env[contract.ENV_EXPORT_DIR] = str(workspace.exports)
        env[contract.ENV_EXPORT_REQUEST] = str(workspace.export_request)
    if container.shows_tensorboard:
        env[contract.ENV_TENSORBOARD_PATH] = container.tensorboard_path
    description = container.description
    if description.training:
        env[contract.ENV_TRAINING_ID] = description.training
    if description.chain_dir:
        env[contract.ENV_CHECKPOINT_URI] = uris.join(description.chain_dir, contract.USER_CHECKPOINTS_DIR)
    if description.warm_start:
        env[contract.ENV_WARM_START] = str(workspace.warm_start)
    if resumed is not None:
        if resumed.path:
            env[contract.ENV_RESUME_FROM] = resumed.path
        if resumed.point.step is not None:
            env[contract.ENV_RESUME_STEP] = str(resumed.point.step)
    return env
