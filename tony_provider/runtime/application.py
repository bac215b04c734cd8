"""The description of an application: one JSON file that the Airflow side hands the nodes beside the credentials.

It is localised to every container.
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
    """Whether a container gets a file as it is, or unpacked."""

    FILE = "FILE"
    ARCHIVE = "ARCHIVE"


@attrs.frozen
class LocalizedResource:
    """A file or archive on the store that a container gets into its working directory under ``name``."""

    name: str  # in the container's working directory; may hold slashes
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
    """What an application master has to know of its YARN cluster."""

    scheduler: list[str]  # the ResourceManagers' scheduler addresses (host:port), one per ResourceManager
    proxies: list[str] = attrs.field(factory=list)  # hosts of YARN's web proxies: whom the master's page answers
    administrators: Optional[str] = None  # yarn.admin.acl, where YARN heeds access lists; None: it heeds none
    queue_administrators: list[str] = attrs.field(factory=list)  # access lists of the job's queue and those above it
    racks: dict[str, str] = attrs.field(factory=dict)  # of the nodes that the job's tasks may be wanted on, by name
    rpc_protection: str = ""  # hadoop.rpc.protection: what is listed there, and stronger, is accepted; empty: anything


@attrs.frozen
class LocalAccess:
    """What an application master has to know of the local cluster: what this machine may give to it."""

    root: str  # directory of this application's containers
    memory: int  # MiB
    vcores: int
    gpus: int = 0


@attrs.frozen
class GpuDealing:
    """That the nodes do not isolate GPUs, and executors deal them among themselves by locks."""

    devices: list[str] = attrs.field(factory=list)  # of each node, for CUDA_VISIBLE_DEVICES; empty: nvidia-smi says


@attrs.frozen
class OtherHdfs:
    """An HDFS beside the one that the store is on."""

    name: str  # what URIs name it by: a nameservice, or a NameNode's host:port
    webhdfs: WebHdfsConfig  # as whoever reads this reaches it


@attrs.frozen
class ApplicationDescription:
    """All that the containers of one application are told: its job, its files, where the store is."""

    application_id: str
    user: str
    job: JobSpec
    application_dir: str  # URI of the application's directory on the store
    webhdfs: Optional[
        WebHdfsConfig
    ]  # of the store, as the nodes reach it, when it is one; a token is in the credentials
    resources: list[LocalizedResource]  # of every task's container, the runtime archive and this file left out
    runtime: LocalizedResource  # the runtime archive
    runtime_pythons: list[str] = attrs.field(factory=list)  # Python versions that the runtime archive was built for
    python: list[str] = attrs.field(factory=list)  # interpreters on the nodes to try first, see launcher.sh
    resources_by_type: dict[str, list[LocalizedResource]] = attrs.field(factory=dict)  # of a task type's, beside these
    yarn: Optional[YarnAccess] = None  # exactly one of yarn and local
    local: Optional[LocalAccess] = None
    shared_checkpoints: str = ""  # path of the directory for all tasks' checkpoints; empty: each task has its own
    chain_dir: str = ""  # URI of the checkpoint chain's directory on the store
    epoch: int = 0  # of this application among the owners of its training
    continues: Optional[str] = None  # URI of another chain, or of a checkpoint of it, with which this one begins
    warm_start: Optional[str] = None  # URI of a model's directory on the store, for initial weights
    master_lost_after: float = 60.0  # seconds without an application master after which executors stop their processes
    hadoop: dict[str, str] = attrs.field(factory=dict)  # Hadoop's properties, for nodes that have none to show
    gpu_dealing: Optional[GpuDealing] = None  # None: containers have the GPUs that their nodes show them
    training: str = ""  # the name of its identity: the same over all tries
    labels: dict[str, str] = attrs.field(factory=dict)  # where it came from (dag, run, task, …), for the event log
    submitted_ms: Optional[int] = None  # epoch, by the clock of Airflow's side
    environment: dict[str, str] = attrs.field(factory=dict)  # variables of user processes; the job's own go over them
    authority: str = ""  # PEM: the certificate that vouches for the application's master; its key is thrown away
    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # that inputs, outputs and programs may name
    zone_offsets: list[ZoneOffset] = attrs.field(factory=list)  # of the job's windows; empty: they are in UTC
    key_server: str = ""  # its URI (kms://…), where the application has a token of it; empty: none
    version: int = 1

    def resources_of(self, task_type: str) -> list[LocalizedResource]:
        """What the containers of a task type get, the runtime archive and this file left out."""
        return [*self.resources, *self.resources_by_type.get(task_type, [])]


class ContainerError(Exception):
    """The container was not launched as ours must be; the message says what is missing or malformed."""


def required_variable(environ: Mapping[str, str], name: str) -> str:
    """The value of an environment variable. Raises ContainerError when it is not set."""
    value = environ.get(name)
    if not value:
        raise ContainerError(f"{name} is not set")
    return value


def read_description(directory: Path, secrets: Mapping[str, bytes]) -> ApplicationDescription:
    """The application's description in a container's directory, by ``secrets`` the one that was submitted.

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
    """The credentials in a container's token file, which is there no longer then. Raises ContainerError.

    Any process of the same user on the node could read the file, and so could whoever talks a server of the job's into
    showing files. Nobody needs it again: the next attempt, of a master or of a task, has a container of its own.
    """
    path = Path(required_variable(environ, contract.ENV_TOKEN_FILE))
    try:
        found = Credentials.read_file(path)
        path.unlink()
    except (OSError, CredentialsError) as error:
        raise ContainerError(str(error)) from error
    return found
