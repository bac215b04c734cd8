"""The description of an application: one JSON file from the Airflow side, next to the credentials.

The description is localised to every container.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset
from tony_provider.runtime.storage import WebHdfsConfig


class ResourceKind(str, Enum):
    """Whether a file is unpacked in the container."""

    FILE = "FILE"
    ARCHIVE = "ARCHIVE"


@attrs.frozen
class LocalizedResource:
    """A file or archive on the store, localised to a container's working directory under ``name``."""

    name: str  # path in the container's working directory; may contain slashes
    uri: str
    size: int  # bytes, exactly as the store reports it: YARN checks
    modified_ms: int  # epoch, exactly as the store reports it: YARN checks
    kind: ResourceKind = ResourceKind.FILE
    sha256: Optional[str] = None  # hexadecimal, of the submitted content; None for the user's own file on the store

    @property
    def is_verified(self) -> bool:
        """Return whether containers verify the content, so that a node may keep the file for other applications."""
        return self.sha256 is not None


@attrs.frozen
class YarnAccess:
    """The addresses and access settings of YARN that an application master needs."""

    scheduler: list[str]  # the ResourceManagers' scheduler addresses (host:port), one per ResourceManager
    proxies: list[str] = attrs.field(factory=list)  # hosts of YARN's web proxies, which may fetch the master's page
    administrators: Optional[str] = None  # yarn.admin.acl if YARN enforces access lists, otherwise None
    queue_administrators: list[str] = attrs.field(factory=list)  # access lists of the job's queue and its parent queues
    racks: dict[str, str] = attrs.field(factory=dict)  # rack by node name, for nodes in placement requests of the job
    rpc_protection: str = ""  # hadoop.rpc.protection: accept these levels and stronger ones; empty: any


@attrs.frozen
class LocalAccess:
    """The resources of this machine that an application master may use as a local cluster."""

    root: str  # directory of this application's containers
    memory: int  # MiB
    vcores: int
    gpus: int = 0


@attrs.frozen
class GpuDealing:
    """Settings for GPUs that the nodes do not isolate.

    The executors of a node assign them among themselves by locks.
    """

    devices: list[str] = attrs.field(factory=list)  # GPUs of each node for CUDA_VISIBLE_DEVICES; empty: from nvidia-smi


@attrs.frozen
class OtherHdfs:
    """An HDFS file system other than the one of the store."""

    name: str  # the name in URIs: a nameservice, or a NameNode's host:port
    webhdfs: WebHdfsConfig  # access from the process that reads this description


@attrs.frozen
class ApplicationDescription:
    """The data that all containers of one application share: its job, its files, and the location of the store."""

    application_id: str
    user: str
    job: JobSpec
    application_dir: str  # URI of the application's directory on the store
    webhdfs: Optional[
        WebHdfsConfig
    ]  # access to the store from the nodes if the store is on WebHDFS; its token is in the credentials
    resources: list[LocalizedResource]  # files of every task's container, without the runtime archive and this file
    runtime: LocalizedResource  # the runtime archive
    runtime_pythons: list[str] = attrs.field(factory=list)  # Python versions that the runtime archive was built for
    python: list[str] = attrs.field(factory=list)  # interpreters on the nodes to try first, see launcher.sh
    resources_by_type: dict[str, list[LocalizedResource]] = attrs.field(factory=dict)  # additional files by task type
    yarn: Optional[YarnAccess] = None  # exactly one of yarn and local is set
    local: Optional[LocalAccess] = None
    shared_checkpoints: str = ""  # path of the directory for all tasks' checkpoints; empty: each task has its own
    chain_dir: str = ""  # URI of the checkpoint chain's directory on the store
    epoch: int = 0  # number of this application among the owners of its training
    continues: Optional[str] = None  # URI of another chain, or of a checkpoint of it, to start from
    warm_start: Optional[str] = None  # URI of a model's directory on the store, for initial weights
    master_lost_after: float = 60.0  # seconds without an application master after which executors stop their processes
    hadoop: dict[str, str] = attrs.field(factory=dict)  # Hadoop properties, for nodes without a Hadoop configuration
    gpu_dealing: Optional[GpuDealing] = None  # None: containers see the GPUs that their nodes assign
    training: str = ""  # name of the training's identity, the same for all tries
    labels: dict[str, str] = attrs.field(factory=dict)  # origin of the job (dag, run, task, …) for the event log
    submitted_ms: Optional[int] = None  # epoch, by the clock of the Airflow side
    environment: dict[str, str] = attrs.field(factory=dict)  # variables of user processes; the job's own override them
    authority: str = ""  # PEM certificate of the authority for the application master; its private key is discarded
    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # file systems that inputs, outputs and programs may name
    zone_offsets: list[ZoneOffset] = attrs.field(factory=list)  # for the job's windows; empty: they are in UTC
    key_server: str = ""  # URI (kms://…) of the key server if the application has a token of it, otherwise empty
    version: int = 1

    def resources_of(self, task_type: str) -> list[LocalizedResource]:
        """Return the files for containers of a task type, without the runtime archive and this file."""
        return [*self.resources, *self.resources_by_type.get(task_type, [])]


class ContainerError(Exception):
    """The container's environment or files are incomplete. The message names the missing or malformed item."""


def required_variable(environ: Mapping[str, str], name: str) -> str:
    """Return the value of an environment variable. Raise ContainerError if it is not set."""
    value = environ.get(name)
    if not value:
        raise ContainerError(f"{name} is not set")
    return value


def read_description(directory: Path, secrets: Mapping[str, bytes]) -> ApplicationDescription:
    """Return the description in a container's directory, after comparing its checksum with the one in ``secrets``.

    Raises ContainerError.
    """
    try:
        content = (directory / contract.APPLICATION_FILE).read_bytes()
        submitted = secrets.get(contract.SECRET_DESCRIPTION)
        if submitted is not None and hashlib.sha256(content).hexdigest().encode() != submitted:
            raise ContainerError(
                f"{contract.APPLICATION_FILE} is not what was submitted: something has changed it in the staging "
                "directory, or on this node, since. Programs of other jobs may have done so that run as the same user"
            )
        return load_json(content, ApplicationDescription)
    except (OSError, CodecError) as error:
        raise ContainerError(f"{contract.APPLICATION_FILE}: {error}") from error


def take_credentials(environ: Mapping[str, str]) -> Credentials:
    """Read a container's token file and delete it. Raises ContainerError.

    Any process of the same user on the node could read the file, also through a server of the job that can be made to
    show files. The file is not needed again, because each attempt of a master or task has its own container.
    """
    path = Path(required_variable(environ, contract.ENV_TOKEN_FILE))
    try:
        found = Credentials.read_file(path)
        path.unlink()
    except (OSError, CredentialsError) as error:
        raise ContainerError(str(error)) from error
    return found
