"""The command lines that start our programs in a container, and the variables that every container gets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.launch import LAUNCHER
from tony_provider.runtime.launch.image_variables import image_variables, plain_variables
from tony_provider.runtime.spec.images import image_of, image_of_master, own_keys
from tony_provider.runtime.spec.model import PythonEnv
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, node_directory

_OF_IMAGES = ("python3", "python")  # on the PATH of an image
YARN_LOG_DIR = "<LOG_DIR>"  # NodeManagers put the container's log directory in its place (ApplicationConstants)


def command(program: str) -> list[str]:
    """The command that starts ``am`` or ``executor`` in a container's working directory."""
    return ["/bin/sh", f"{contract.RUNTIME_DIR}/{LAUNCHER}", program]


def on_yarn(words: Sequence[str]) -> str:
    """The shell's command line for a NodeManager's launch script.

    It runs in a shell in a shell, the outer of which would expand a ``$``. ``exec``, so that no shell leads the process
    group: its death on SIGTERM would end the container at once.
    """
    return " ".join(["exec", *map(shlex.quote, words), f"1>{YARN_LOG_DIR}/stdout", f"2>{YARN_LOG_DIR}/stderr"])


def environment(description: ApplicationDescription, task_type: Optional[str] = None) -> dict[str, str]:
    """The variables of the containers of a task type, or of the application master's; no secret is in them."""
    job = description.job
    python_env = job.python_env if task_type is None else job.python_env_of(task_type)
    image = image_of_master(job) if task_type is None else image_of(job, task_type)
    variables = {}
    if candidates := _interpreters(python_env, description.python, in_image=image is not None):
        variables[contract.ENV_PYTHON_CANDIDATES] = ":".join(candidates)
    if image is not None:
        variables.update(image_variables(image))
    elif own_keys(job):
        variables.update(plain_variables())
    return variables


def _interpreters(python_env: Optional[PythonEnv], of_nodes: Sequence[str], *, in_image: bool) -> list[str]:
    """Those that the launcher tries first: that of the environment, an image's own, those that the connection names.

    The connection has them for nodes, and an image is none.
    """
    return [*_brought(python_env), *(_OF_IMAGES if in_image else ()), *of_nodes]


def _brought(python_env: Optional[PythonEnv]) -> list[str]:
    """The one that an environment brings along, if it does."""
    kind = None if python_env is None else kind_of(python_env)
    if python_env is None or kind not in (EnvironmentKind.ARCHIVE, EnvironmentKind.DIRECTORY):
        return []
    directory = contract.PYTHON_ENV_DIR if kind is EnvironmentKind.ARCHIVE else node_directory(python_env)
    return [f"{directory}/bin/python"]
