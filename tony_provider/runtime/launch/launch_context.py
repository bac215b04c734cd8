"""Launch context of a container: its command, environment variables and files.

On the local cluster, a container's directory and environment have the same content as on YARN.

A NodeManager writes these values between double quotes into a shell script. So values that the script would interpret
are rejected. YARN gets generated file names, and the executor links each file to the name that the job specifies.
"""

from __future__ import annotations

import os
import pkgutil
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.application import ApplicationDescription, LocalizedResource, ResourceKind
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.files import remove_tree, write_private_file
from tony_provider.runtime.common.text import one_line
from tony_provider.runtime.jobspec.container_content import (
    EnvironmentKind,
    docker_keys,
    image_of,
    image_of_master,
    is_docker_image,
    node_directory,
    python_env_kind,
)
from tony_provider.runtime.jobspec.model import Docker, JobSpec, PythonEnv
from tony_provider.runtime.storage import local_path

START = "start.py"


def launch_file(name: str) -> str:
    """Return the text of a file of this package without comment lines. Raises FileNotFoundError."""
    data = pkgutil.get_data(__package__, name)
    if data is None:
        raise FileNotFoundError(f"{name} is not part of this installation")
    lines = data.decode().splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#")) + "\n"


def generated_names(resources: Iterable[LocalizedResource]) -> Mapping[str, str]:
    """Return the generated name of each file by its URI. A file with several names in a job has one generated name."""
    uris = dict.fromkeys(resource.uri for resource in resources)
    return {uri: f"{contract.FILES_DIR}/{number}" for number, uri in enumerate(uris)}


def container_files(runtime: LocalizedResource, resources: Iterable[LocalizedResource]) -> dict[str, LocalizedResource]:
    """Return all files of a container by their names in its directory."""
    resources = list(resources)
    names = generated_names(resources)
    return {contract.RUNTIME_FILE: runtime, **{names[resource.uri]: resource for resource in resources}}


_TYPE = "YARN_CONTAINER_RUNTIME_TYPE"
_DOCKER, _RUNC = "YARN_CONTAINER_RUNTIME_DOCKER_", "YARN_CONTAINER_RUNTIME_RUNC_"


def image_variables(image: Docker) -> dict[str, str]:
    """Return the variables for a container in an image."""
    if not is_docker_image(image):
        return {_TYPE: "runc", f"{_RUNC}IMAGE": image.image or "", **_mounts(_RUNC, image.mounts)}
    variables = {
        "IMAGE": image.image,
        "CONTAINER_NETWORK": image.network,
        "CONTAINER_PID_NAMESPACE": image.pid_namespace.value if image.pid_namespace else None,
        "RUNTIME": image.oci_runtime,
        "TMPFS_MOUNTS": ",".join(image.tmpfs or ()),
        "RUN_PRIVILEGED_CONTAINER": "true" if image.privileged else None,  # no other value is allowed
        "DELAYED_REMOVAL": "true" if image.delayed_removal else None,
        # Otherwise the image's entry point replaces our program on NodeManagers that use the entry point by default.
        "RUN_OVERRIDE_DISABLE": "false",
    }
    said = {f"{_DOCKER}{name}": value for name, value in variables.items() if value}
    return {_TYPE: "docker", **said, **_mounts(_DOCKER, image.mounts)}


def _mounts(prefix: str, mounts: Optional[Sequence[str]]) -> dict[str, str]:
    # Hadoop before 3.2 requires the mode of each mount.
    with_modes = (mount if mount.count(":") > 1 else f"{mount}:rw" for mount in mounts or ())
    return {f"{prefix}MOUNTS": ",".join(with_modes)} if mounts else {}


_OF_IMAGES = ("python3", "python")  # names on the PATH of an image


def launch_command(
    program: str, runtime: LocalizedResource, pythons: Sequence[str], resources: Sequence[LocalizedResource] = ()
) -> list[str]:
    """Return the command that starts ``am`` or ``executor`` in a container's working directory.

    ``resources`` are the job's files in this container. If the node has no suitable Python, the launcher uses the
    Python of a packed environment among these files.
    """
    words = ["/bin/sh", "-c", launch_file("launcher.sh"), "tony", launch_file("prepare.py"), program]
    words += [runtime.sha256 or "", ", ".join(pythons)]
    packed = [each for each in resources if each.name == contract.PYTHON_ENV_DIR and each.kind is ResourceKind.ARCHIVE]
    for archive in packed[:1]:
        words += [generated_names(resources)[archive.uri], archive.sha256 or ""]
    return words


def launch_environment(description: ApplicationDescription, task_type: Optional[str] = None) -> dict[str, str]:
    """Return the variables for a task type's containers, or for the application master if ``task_type`` is None.

    They contain no secrets.
    """
    return job_launch_environment(description.job, description.python, task_type)


def job_launch_environment(
    job: JobSpec, node_pythons: Sequence[str], task_type: Optional[str] = None
) -> dict[str, str]:
    """Return the variables for a job. ``node_pythons``: the interpreters that the connection names."""
    python_env = job.python_env if task_type is None else job.python_env_of(task_type)
    image = image_of_master(job) if task_type is None else image_of(job, task_type)
    variables = {}
    if candidates := _interpreters(python_env, node_pythons, in_image=image is not None):
        variables[contract.ENV_PYTHON_CANDIDATES] = ":".join(candidates)
    if image is not None:
        variables.update(image_variables(image))
    elif docker_keys(job):
        variables[_TYPE] = "default"  # a plain process, even if the nodes use an image by default
    return variables


def _interpreters(python_env: Optional[PythonEnv], of_nodes: Sequence[str], *, in_image: bool) -> list[str]:
    """Return the interpreters that the launcher tries first: those of an environment, of an image, of the connection.

    The image's interpreters come before the connection's, because the connection names interpreters of nodes. A packed
    environment is not in the list, because the launcher must verify it before its Python runs.
    """
    is_directory = python_env is not None and python_env_kind(python_env) is EnvironmentKind.DIRECTORY
    brought = [f"{node_directory(python_env)}/bin/python"] if python_env is not None and is_directory else []
    return [*brought, *(_OF_IMAGES if in_image else ()), *of_nodes]


LOG_DIR = "<LOG_DIR>"  # NodeManagers replace it by the container's log directory (ApplicationConstants)
_REPLACED = re.compile(r"\{\{|\}\}|<LOG_DIR>|<CPS>")
_INTERPRETED = re.compile(r'[$`"\\\x00-\x1f\x7f]|' + _REPLACED.pattern)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9._/-]+")


class UnsafeValue(ValueError):  # noqa: N818 - named for what is wrong
    """A value that a NodeManager's launch script would interpret."""


@attrs.frozen
class ScriptValues:
    """Values of a launch context that the launch script does not interpret."""

    command: str
    variables: dict[str, str]
    files: dict[str, LocalizedResource]  # by their names in the container's directory


def script_values(
    words: Sequence[str], variables: Mapping[str, str], files: Mapping[str, LocalizedResource]
) -> ScriptValues:
    """Return the values for a command of plain words, its variables and files. Raises UnsafeValue."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise UnsafeValue(f"{name!a} is not a valid name of an environment variable")
        _check(f"the variable {name}", value)
    for name, resource in files.items():
        if not _FILE.fullmatch(name):
            raise UnsafeValue(f"{name!a} is not a generated file name")
        _check("the file", resource.uri.rpartition("/")[2])
    return ScriptValues(_command(words), {**variables, contract.ENV_LOG_DIR: LOG_DIR}, dict(files))


def _check(what: str, value: str) -> None:
    if found := _INTERPRETED.search(value):
        raise UnsafeValue(
            f"{what} {one_line(value)!a} contains {found[0]!a}, which YARN's launch script would interpret; change it"
        )


def _command(words: Sequence[str]) -> str:
    """Return the shell command. It begins with ``exec``, so that no shell leads the process group.

    A shell that leads the group would end the container at SIGTERM, before the program has stopped.
    """
    line = " ".join(["exec", *map(shlex.quote, words)])
    if found := _REPLACED.search(line):
        raise UnsafeValue(f"the command contains {found[0]}, which YARN would replace")
    escaped = re.sub(r'([$`"\\])', r"\\\1", line)
    return f"{escaped} 1>{LOG_DIR}/stdout 2>{LOG_DIR}/stderr"


NODE_HOST = "127.0.0.1"
NODE_PORT = "0"  # there is no NodeManager to reach
TOKEN_FILE = "container_tokens"  # as on YARN
PID_FILE = "container_pid"  # in the container's directory: PID and start time (/proc/<pid>/stat, field 22)

# Variables that a container inherits. It does not receive others, such as Airflow's settings.
_INHERITED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH"),
    *("JAVA_HOME", "HADOOP_HOME", "HADOOP_COMMON_HOME", "HADOOP_HDFS_HOME", "HADOOP_CONF_DIR"),  # as NodeManagers do
    *(contract.ENV_TICKET, "KRB5_CONFIG"),
)


def materialise(directory: Path, files: Mapping[str, LocalizedResource]) -> None:
    """Create ``directory`` and link each file (a ``file://`` URI) into it under its name, as NodeManagers do.

    An existing directory is removed first: a program of another container created it, and a link in it could redirect
    the credentials. Raises FileNotFoundError if a file does not exist, FileExistsError if the directory cannot be
    removed.
    """
    if directory.exists():
        remove_tree(directory)
    directory.mkdir(parents=True, mode=0o700)
    for name, resource in files.items():
        source = local_path(resource.uri)
        if not source.exists():
            raise FileNotFoundError(f"{resource.uri} does not exist; a container needs it as {resource.name}")
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
