"""The submission that YARN's REST interface wants, made of a Submission."""

from __future__ import annotations

import base64
from typing import Any

from tony_provider.cluster.base import Submission
from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.spec.model import Docker
from tony_provider.runtime.storage import uris

APPLICATION_TYPE = "TONY"
# `exec`, so that no shell leads the process group: its death on SIGTERM would end the container at once.
# No `$` in it: it would expand in the shell that YARN's launch script runs it with.
AM_COMMAND = f"exec /bin/sh {contract.RUNTIME_DIR}/launch.sh am 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"


def submission_context(submission: Submission, max_attempts: int) -> dict[str, Any]:
    """The body of ``POST /ws/v1/cluster/apps``."""
    job = submission.description.job
    context: dict[str, Any] = {
        "application-id": submission.description.application_id,
        "application-name": job.name,
        "application-type": APPLICATION_TYPE,
        "am-container-spec": {
            "local-resources": _entries({resource.name: _local(resource) for resource in submission.am_resources}),
            "commands": {"command": AM_COMMAND},
            "environment": _entries(am_environment(submission)),
            "credentials": _credentials(submission.credentials),
        },
        "unmanaged-AM": False,
        "max-app-attempts": max_attempts,
        "resource": {"memory": int(job.am.memory), "vCores": job.am.vcores},
        "keep-containers-across-application-attempts": False,
        "application-tags": {"tag": submission.tags},
    }
    if job.queue is not None:
        context["queue"] = job.queue
    if job.priority is not None:
        context["priority"] = job.priority
    if job.node_label is not None:
        context["app-node-label-expression"] = job.node_label
    if (am_label := job.am.node_label or job.node_label) is not None:
        context["am-container-node-label-expression"] = am_label
    return context


def am_environment(submission: Submission) -> dict[str, str]:
    """The environment of the application master's container; no secret is in it."""
    description = submission.description
    environment = {contract.ENV_LOG_DIR: "<LOG_DIR>"}  # YARN puts the directory in
    if description.python:
        environment[contract.ENV_PYTHON_CANDIDATES] = ":".join(description.python)
    if description.job.docker is not None:
        environment.update(docker_environment(description.job.docker))
    return environment


def docker_environment(docker: Docker) -> dict[str, str]:
    """What makes a NodeManager run a container in an image.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/DockerContainers.html
    """
    environment = {"YARN_CONTAINER_RUNTIME_TYPE": "docker", "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": docker.image}
    if docker.mounts:
        environment["YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"] = ",".join(docker.mounts)
    return environment


def _local(resource: LocalizedResource) -> dict[str, Any]:
    # The file that describes one application is of no use to others; all else is kept on the node for the next job.
    shared = resource.name != contract.APPLICATION_FILE
    return {
        "resource": uris.encoded(resource.uri),
        "type": resource.kind.value,
        "visibility": "PRIVATE" if shared else "APPLICATION",
        "size": resource.size,
        "timestamp": resource.modified_ms,
    }


def _credentials(credentials: Credentials) -> dict[str, Any]:
    tokens = {alias: token.to_url_string() for alias, token in credentials.tokens.items()}
    secrets = {name: base64.b64encode(secret).decode() for name, secret in credentials.secrets.items()}
    # No empty ones: Hadoop 2.10's JSON reader fails at an empty list.
    return {key: _entries(values) for key, values in (("tokens", tokens), ("secrets", secrets)) if values}


def _entries(mapping: dict[str, Any]) -> dict[str, Any]:
    """A Java map, as JAXB writes it."""
    return {"entry": [{"key": key, "value": value} for key, value in mapping.items()]}
