"""The container of an executor: its job, task, credentials and addresses.

The module also finds the address at which a task's servers should listen: other tasks know the node by it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import ipaddress
import socket
import struct
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import application
from tony_provider.runtime.application import ApplicationDescription, ContainerError, required_variable
from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, HIVE_TOKEN, KEY_SERVER_TOKEN, Credentials, Token
from tony_provider.runtime.jobspec.container_content import image_of
from tony_provider.runtime.jobspec.model import TENSORBOARD, Docker, JobSpec, Role, TaskSpec, in_cluster
from tony_provider.runtime.protocol import task_identity
from tony_provider.runtime.protocol.store_tokens import StoreToken, replace_store_token
from tony_provider.runtime.protocol.task_identity import TaskIdentity

_SIOCGIFADDR = 0x8915  # netdevice(7): the first IPv4 address of an interface
_NAME_BYTES = 15  # bytes of an interface's name, at most
_ADDRESS = slice(20, 24)  # position of the address in the ifreq that the kernel returns


@attrs.frozen
class OwnAddress:
    """An IP address of this container itself."""

    address: str  # numeric
    interface: str  # interface with this address; empty for IPv6, and if no interface has it as first address


def own_address(host: str, others: Iterable[str]) -> Optional[OwnAddress]:
    """Return the only address of ``host``, the name by which other tasks know this node. Queries DNS.

    ``others``: the hosts of the job's tasks. Return None if no single address is reachable for all tasks, so that
    servers must listen everywhere. There are three cases.

    - The name has no address or several.
    - The name means the loopback here, and other tasks are on other nodes.
    - The container has a separate network.
    """
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return None
    if len(found) != 1:
        return None
    address = found.pop()
    is_loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    if (is_loopback and any(other not in ("", host) for other in others)) or not _is_here(address):
        return None
    return OwnAddress(address, _interface(address, is_loopback=is_loopback))


def address_in_image(node: str) -> str:
    """Return the address by which other tasks reach a Docker container on ``node``. Queries DNS.

    If the container shares the node's network, that is ``node``. Otherwise it is the container's address in its own
    network. The container's host name, which YARN and Docker set, resolves to this address.
    """
    try:
        of_node = {str(entry[4][0]) for entry in socket.getaddrinfo(node, None, type=socket.SOCK_STREAM)}
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        return node
    if any(map(_is_here, of_node)) or ipaddress.ip_address(own).is_loopback or not _is_here(own):
        return node
    return own


def _is_here(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _interface(address: str, *, is_loopback: bool) -> str:
    """Return the interface with an address. The loopback has all addresses of 127.0.0.0/8, but lists only one."""
    for _, name in socket.if_nameindex():
        first = _first_address(name)
        if first == address or (is_loopback and first.startswith("127.")):
            return name
    return ""


def _first_address(interface: str) -> str:
    """Return the first IPv4 address of an interface, or an empty string."""
    asked = struct.pack("256s", interface.encode()[:_NAME_BYTES])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)[_ADDRESS])
    except OSError:
        return ""


_USER_TOKEN_KINDS = frozenset({HDFS_TOKEN, KEY_SERVER_TOKEN, HIVE_TOKEN})


class ContainerCredentials:
    """Tokens and secrets of a container. Several threads may use an object."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self.version = 0  # number of token updates

    @property
    def secrets(self) -> Mapping[str, bytes]:
        return self._credentials.secrets

    def user_tokens(self) -> tuple[int, dict[str, Token]]:
        """Return the version, and the delegation tokens of HDFS, key servers and metastores by their aliases."""
        with self._lock:
            tokens = self._credentials.tokens.items()
            return self.version, {alias: token for alias, token in tokens if token.kind in _USER_TOKEN_KINDS}

    def take_store_token(self, newer: StoreToken) -> None:
        """Replace the tokens of the store by newer ones. Raises CredentialsError."""
        with self._lock:
            replace_store_token(self._credentials, newer)
            self.version += 1


@attrs.frozen
class ExecutorContainer:
    """The container of an executor, with its job, task, master, node and directories."""

    description: ApplicationDescription
    credentials: ContainerCredentials = attrs.field(repr=False)
    token: str = attrs.field(repr=False)  # secret that proves the task's identity to the master
    identity: TaskIdentity
    task_type: str
    index: int
    master: str  # host:port of the application master
    host: str  # host by which other tasks reach this container: the node, or an address in a Docker network
    node: str  # host:port of the NodeManager
    directory: Path  # working directory
    log_dir: Path
    environ: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def of_process(cls, environ: Mapping[str, str], directory: Path) -> ExecutorContainer:
        """Return the container of this process, from its environment and directory.

        Reads the token file and deletes it. Raises ContainerError.
        """
        task = required_variable(environ, contract.ENV_TASK)
        task_type, _, index = task.rpartition(":")
        attempt = required_variable(environ, contract.ENV_TASK_ATTEMPT)
        if not task_type or not index.isdecimal() or not attempt.isdecimal():
            raise ContainerError(f"{contract.ENV_TASK}={task}, {contract.ENV_TASK_ATTEMPT}={attempt} name no task")
        credentials = ContainerCredentials(application.take_credentials(environ))
        description = application.read_description(credentials.secrets)
        if task_type not in description.job.tasks:
            raise ContainerError(f"the job has no task {task}; its task types are {', '.join(description.job.tasks)}")
        node = required_variable(environ, contract.ENV_NODE_HOST)
        in_image = image_of(description.job, task_type) is not None
        return cls(
            description=description,
            credentials=credentials,
            token=_token(credentials.secrets),
            identity=TaskIdentity(
                description.application_id, required_variable(environ, contract.ENV_CONTAINER_ID), task, int(attempt)
            ),
            task_type=task_type,
            index=int(index),
            master=required_variable(environ, contract.ENV_AM_ADDRESS),
            host=address_in_image(node) if in_image else node,
            node=f"{node}:{required_variable(environ, contract.ENV_NODE_PORT)}",
            directory=directory,
            log_dir=Path(required_variable(environ, contract.ENV_LOG_DIR)),
            environ=environ,
        )

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """The secrets in the credentials (everything except tokens), by the names of the contract."""
        return self.credentials.secrets

    @property
    def job(self) -> JobSpec:
        return self.description.job

    @property
    def spec(self) -> TaskSpec:
        return self.job.tasks[self.task_type]

    @property
    def node_host(self) -> str:
        """The host name of the container's node."""
        return self.node.rpartition(":")[0]

    @property
    def image(self) -> Optional[Docker]:
        """The image of the container, or None for a plain process of the node."""
        return image_of(self.job, self.task_type)

    @property
    def command(self) -> str:
        """The task type's command. If the job specifies none, it is the framework's default for the role."""
        return self.spec.command or get_framework(self.job.framework).default_command(self.role)

    @property
    def process_count(self) -> int:
        """The number of user processes in the container."""
        return self.spec.process_count

    @property
    def role(self) -> Role:
        return self.job.role(self.task_type)

    @property
    def shows_tensorboard(self) -> bool:
        """Whether this container is the sidecar for the job's key ``tensorboard``."""
        return self.job.tensorboard is not None and self.task_type == TENSORBOARD

    @property
    def tensorboard_path(self) -> str:
        """The path below which TensorBoard answers. It is secret, because every user of the node can reach the port."""
        return "/" + hmac.new(self.token.encode(), b"tensorboard", hashlib.sha256).hexdigest()

    @property
    def user_secrets(self) -> dict[str, str]:
        """The user's secrets, by the names of their environment variables."""
        return contract.user_secrets(self.secrets)

    @property
    def framework_secrets(self) -> dict[str, str]:
        """The secrets that authenticate the cluster's processes to each other, if the framework uses any.

        They are the same in all tasks. Raises MissingSecretError.
        """
        variables = get_framework(self.job.framework).secret_variables if in_cluster(self.role) else frozenset()
        return {name: self._made_of_the_job_key(name) for name in variables}

    def _made_of_the_job_key(self, purpose: str) -> str:
        key = task_identity.secret(self.secrets, contract.SECRET_JOB_KEY)
        return hmac.new(key, purpose.encode(), hashlib.sha256).hexdigest()


def _token(secrets: Mapping[str, bytes]) -> str:
    try:
        return task_identity.secret(secrets, contract.SECRET_TASK_TOKEN).decode("ascii")
    except (task_identity.IdentityError, UnicodeDecodeError) as error:
        raise ContainerError(str(error)) from error
