"""The command lines that start our programs in a container, and the variables that every container gets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.launch import LAUNCHER
from tony_provider.runtime.spec.model import Docker

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


def environment(description: ApplicationDescription) -> dict[str, str]:
    """The variables that all containers of an application have in common; no secret is in them."""
    variables = {}
    if description.python:
        variables[contract.ENV_PYTHON_CANDIDATES] = ":".join(description.python)
    if description.job.docker is not None:
        variables.update(_docker(description.job.docker))
    return variables


def _docker(docker: Docker) -> dict[str, str]:
    """What makes a NodeManager run a container in an image.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/DockerContainers.html
    """
    variables = {"YARN_CONTAINER_RUNTIME_TYPE": "docker", "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": docker.image}
    if docker.mounts:
        variables["YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"] = ",".join(docker.mounts)
    return variables
