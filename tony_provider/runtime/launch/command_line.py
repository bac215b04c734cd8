"""The command lines that start our programs in a container, and the variables that every container gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime import contract, launch
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource, ResourceKind
from tony_provider.runtime.launch.container_files import generated_names
from tony_provider.runtime.launch.image_variables import image_variables, plain_variables
from tony_provider.runtime.spec.images import image_of, image_of_master, own_keys
from tony_provider.runtime.spec.model import JobSpec, PythonEnv
from tony_provider.runtime.spec.python_env import EnvironmentKind, kind_of, node_directory

_OF_IMAGES = ("python3", "python")  # on the PATH of an image


def command(
    program: str, runtime: LocalizedResource, pythons: Sequence[str], resources: Sequence[LocalizedResource] = ()
) -> list[str]:
    """Return the command that starts ``am`` or ``executor`` in a container's working directory.

    ``resources`` are the job's files in this container. If the node has no suitable Python, the launcher uses the
    Python of a packed environment among these files.
    """
    words = ["/bin/sh", "-c", launch.text("launcher.sh"), "tony", launch.text("prepare.py"), program]
    words += [runtime.sha256 or "", ", ".join(pythons)]
    packed = [each for each in resources if each.name == contract.PYTHON_ENV_DIR and each.kind is ResourceKind.ARCHIVE]
    for environment in packed[:1]:
        words += [generated_names(resources)[environment.uri], environment.sha256 or ""]
    return words


def environment(description: ApplicationDescription, task_type: Optional[str] = None) -> dict[str, str]:
    """Return the variables of a task type's containers, or of the application master's. They contain no secrets."""
    return environment_of(description.job, description.python, task_type)


def environment_of(job: JobSpec, node_pythons: Sequence[str], task_type: Optional[str] = None) -> dict[str, str]:
    """Return the variables for a job; ``node_pythons`` are the interpreters that the connection names."""
    python_env = job.python_env if task_type is None else job.python_env_of(task_type)
    image = image_of_master(job) if task_type is None else image_of(job, task_type)
    variables = {}
    if candidates := _interpreters(python_env, node_pythons, in_image=image is not None):
        variables[contract.ENV_PYTHON_CANDIDATES] = ":".join(candidates)
    if image is not None:
        variables.update(image_variables(image))
    elif own_keys(job):
        variables.update(plain_variables())
    return variables


def _interpreters(python_env: Optional[PythonEnv], of_nodes: Sequence[str], *, in_image: bool) -> list[str]:
    """Return the interpreters that the launcher tries first: an environment's, an image's, then the connection's.

    The image's interpreters come before the connection's, because the connection names interpreters of nodes. A packed
    environment is not in the list, because the launcher must verify it before it runs.
    """
    is_directory = python_env is not None and kind_of(python_env) is EnvironmentKind.DIRECTORY
    brought = [f"{node_directory(python_env)}/bin/python"] if python_env is not None and is_directory else []
    return [*brought, *(_OF_IMAGES if in_image else ()), *of_nodes]
