"""The container as its executor finds it: who it is, what to run, where to write."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import container_inputs, contract, task_identity
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.container_inputs import ContainerError, variable
from tony_provider.runtime.executor.container_credentials import ContainerCredentials
from tony_provider.runtime.executor.own_address import address_in_image
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.images import image_of
from tony_provider.runtime.spec.model import TENSORBOARD, Docker, JobSpec, Role, TaskSpec
from tony_provider.runtime.task_identity import TaskIdentity


@attrs.frozen
class ExecutorContainer:
    """What an executor finds in its container: its job, task, master, node and directories."""

    description: ApplicationDescription
    credentials: ContainerCredentials = attrs.field(repr=False)
    token: str = attrs.field(repr=False)  # proves the identity
    identity: TaskIdentity
    task_type: str
    index: int
    master: str  # host:port of the application master
    host: str  # by which others reach this container: its node's, but in a network of Docker's its own
    node: str  # host:port of the NodeManager
    directory: Path  # working directory
    log_dir: Path
    environ: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def of_process(cls, environ: Mapping[str, str], directory: Path) -> ExecutorContainer:
        """The container of this process, by its environment and directory. Takes the credentials out of the token file.

        Raises ContainerError.
        """
        task = variable(environ, contract.ENV_TASK)
        task_type, _, index = task.rpartition(":")
        attempt = variable(environ, contract.ENV_TASK_ATTEMPT)
        if not task_type or not index.isdecimal() or not attempt.isdecimal():
            raise ContainerError(f"{contract.ENV_TASK}={task}, {contract.ENV_TASK_ATTEMPT}={attempt} name no task")
        credentials = ContainerCredentials(container_inputs.take_credentials(environ))
        description = container_inputs.description(directory, credentials.secrets)
        if task_type not in description.job.tasks:
            raise ContainerError(f"{task} is no task of the job, which has {', '.join(description.job.tasks)}")
        node = variable(environ, contract.ENV_NODE_HOST)
        in_image = image_of(description.job, task_type) is not None
        return cls(
            description=description,
            credentials=credentials,
            token=_token(credentials.secrets),
            identity=TaskIdentity(
                description.application_id, variable(environ, contract.ENV_CONTAINER_ID), task, int(attempt)
            ),
            task_type=task_type,
            index=int(index),
            master=variable(environ, contract.ENV_AM_ADDRESS),
            host=address_in_image(node) if in_image else node,
            node=f"{node}:{variable(environ, contract.ENV_NODE_PORT)}",
            directory=directory,
            log_dir=Path(variable(environ, contract.ENV_LOG_DIR)),
            environ=environ,
        )

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """What its credentials hold beside tokens, by the names of the contract."""
        return self.credentials.secrets

    @property
    def job(self) -> JobSpec:
        return self.description.job

    @property
    def spec(self) -> TaskSpec:
        return self.job.tasks[self.task_type]

    @property
    def node_host(self) -> str:
        """The node that the container is on."""
        return self.node.rpartition(":")[0]

    @property
    def image(self) -> Optional[Docker]:
        """What the container runs in; None: it is a plain process of its node."""
        return image_of(self.job, self.task_type)

    @property
    def command(self) -> str:
        """The task type's command, or its framework's for types that give none."""
        return self.spec.command or get_framework(self.job.framework).default_command(self.role)

    @property
    def process_count(self) -> int:
        """How many user processes it runs."""
        return self.spec.process_count

    @property
    def role(self) -> Role:
        return self.job.role(self.task_type)

    @property
    def shows_tensorboard(self) -> bool:
        """Whether this is the side-car of the job's key ``tensorboard``."""
        return self.job.tensorboard is not None and self.task_type == TENSORBOARD

    @property
    def tensorboard_path(self) -> str:
        """The path below which TensorBoard answers, a secret: everybody on the node can reach its port."""
        return "/" + hmac.new(self.token.encode(), b"tensorboard", hashlib.sha256).hexdigest()

    @property
    def user_secrets(self) -> dict[str, str]:
        """The user's secrets, by the names of the variables that they become."""
        return contract.user_secrets(self.secrets)

    @property
    def framework_secrets(self) -> dict[str, str]:
        """What processes of the cluster know each other by, where the framework wants it: in all tasks the same.

        Raises MissingSecretError.
        """
        variables = get_framework(self.job.framework).secret_variables if in_cluster(self.role) else frozenset()
        return {variable: self._made_of_the_job_key(variable) for variable in variables}

    def _made_of_the_job_key(self, purpose: str) -> str:
        key = task_identity.secret(self.secrets, contract.SECRET_JOB_KEY)
        return hmac.new(key, purpose.encode(), hashlib.sha256).hexdigest()


def _token(secrets: Mapping[str, bytes]) -> str:
    try:
        return task_identity.secret(secrets, contract.SECRET_TASK_TOKEN).decode("ascii")
    except (task_identity.IdentityError, UnicodeDecodeError) as error:
        raise ContainerError(str(error)) from error
