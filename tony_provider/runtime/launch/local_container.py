"""A container's directory and environment on the local cluster, with the same content as on YARN.

All functions block.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.files import remove_tree, write_private_file
from tony_provider.runtime.storage import local_path

NODE_HOST = "127.0.0.1"
NODE_PORT = "0"  # there is no NodeManager to reach
TOKEN_FILE = "container_tokens"  # as on YARN
PID_FILE = "container_pid"  # in the container's directory: PID and start time (/proc/<pid>/stat, field 22)

# Variables that a container inherits. Other variables, such as Airflow's settings, do not concern it.
_INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH"),
    *("JAVA_HOME", "HADOOP_HOME", "HADOOP_COMMON_HOME", "HADOOP_HDFS_HOME", "HADOOP_CONF_DIR"),  # as NodeManagers do
    *(contract.ENV_TICKET, "KRB5_CONFIG"),
)


def materialise(directory: Path, files: Mapping[str, LocalizedResource]) -> None:
    """Create ``directory`` and link each file (a ``file://`` URI) into it under its name, as NodeManagers do.

    An existing directory is removed first: a program of another container made it, and a link in it could redirect
    credentials to another place. Raises FileNotFoundError if a file does not exist, FileExistsError if the directory
    cannot be removed.
    """
    if directory.exists():
        remove_tree(directory)
    directory.mkdir(parents=True, mode=0o700)
    for name, resource in files.items():
        source = local_path(resource.uri)
        if not source.exists():
            raise FileNotFoundError(f"{resource.uri} does not exist; it should become {resource.name} in a container")
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)


def container_environment(
    container_id: str, directory: Path, log_dir: Path, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables that a NodeManager would set. The token file must be at ``directory / TOKEN_FILE``."""
    kept = {name: inherited[name] for name in _INHERITED if name in inherited}
    return {
        "PATH": os.defpath,
        **kept,
        contract.ENV_CONTAINER_ID: container_id,
        contract.ENV_NODE_HOST: NODE_HOST,
        contract.ENV_NODE_PORT: NODE_PORT,
        contract.ENV_LOCAL_DIRS: str(directory),
        contract.ENV_LOG_DIR: str(log_dir),
        contract.ENV_TOKEN_FILE: str(directory / TOKEN_FILE),
        "PWD": str(directory),
    }


def write_tokens(directory: Path, credentials: bytes) -> None:
    """Write the token file, readable only by its owner. Raises OSError."""
    write_private_file(directory / TOKEN_FILE, credentials)
