"""The description of an application, and the application's store.

The Airflow side builds the description. Every container receives it in its credentials. A copy on the store is for
clients, and for the removal of temporary files.

Viewers get read access to the records only: status, result, history and kept logs. Only the owner can read models,
exports, checkpoints, inputs, the job's return value, and staged files.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import APPLICATION_LIMIT
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.model import EVERYBODY, JobSpec
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset
from tony_provider.runtime.outputs.publication import OutputPlace, clear_away
from tony_provider.runtime.protocol.store_tokens import other_tokens
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageNotFound,
    StorageTooLarge,
    WebHdfsConfig,
    open_storage,
    read_whole,
    uris,
)
from tony_provider.runtime.storage.base import Readers, SharedFiles, list_existing, read_bytes, write_atomically
from tony_provider.runtime.storage.stores import JobStores, remove_leftovers
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

log = logging.getLogger(__name__)


class ResourceKind(str, Enum):
    """The kind of a localised file: a FILE is used as it is, an ARCHIVE is unpacked in the container."""

    FILE = "FILE"
    ARCHIVE = "ARCHIVE"


@attrs.frozen
class LocalizedResource:
    """A file or archive on the store, localised to a container's working directory under ``name``."""

    name: str  # path in the container's working directory; may contain slashes
    uri: str
    size: int  # bytes, exactly as the store reports it; YARN rejects the file if this differs
    modified_ms: int  # epoch milliseconds, exactly as the store reports them; YARN rejects the file if they differ
    kind: ResourceKind = ResourceKind.FILE
    sha256: Optional[str] = None  # hexadecimal checksum of the submitted content; None for the user's own file

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
    rpc_protection: str = ""  # value of hadoop.rpc.protection: these levels and stronger ones are accepted; empty: any


@attrs.frozen
class LocalAccess:
    """The resources of this machine that an application master may use as a local cluster."""

    root: str  # directory of this application's containers
    memory: int  # MiB
    vcores: int
    gpus: int = 0


@attrs.frozen
class GpuDealing:
    """Settings for nodes that do not isolate GPUs between containers.

    The executors on a node use locks to divide the node's GPUs among themselves.
    """

    devices: list[str] = attrs.field(factory=list)  # each node's GPUs, for CUDA_VISIBLE_DEVICES; empty: see nvidia-smi


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
    ]  # access from the nodes to a store on WebHDFS, or None; the token of the store is in the credentials
    resources: list[LocalizedResource]  # files of every task's container, without the runtime archive and this file
    runtime: LocalizedResource  # the runtime archive
    runtime_pythons: list[str] = attrs.field(factory=list)  # Python versions that the runtime archive was built for
    python: list[str] = attrs.field(factory=list)  # interpreters on the nodes to try first, see launcher.sh
    resources_by_type: dict[str, list[LocalizedResource]] = attrs.field(factory=dict)  # additional files by task type
    yarn: Optional[YarnAccess] = None  # exactly one of yarn and local is set
    local: Optional[LocalAccess] = None
    shared_checkpoints: str = ""  # path of the directory for all tasks' checkpoints; empty: each task has its own
    chain_dir: str = ""  # URI of the checkpoint chain's directory on the store
    epoch: int = 0  # number of this application in the sequence of the owners of its training, see ``Epoch``
    continues: Optional[str] = None  # URI of another checkpoint chain, or of a checkpoint in it, to start from
    warm_start: Optional[str] = None  # URI of a model's directory on the store, for initial weights
    master_lost_after: float = 60.0  # seconds without an application master after which executors stop their processes
    hadoop: dict[str, str] = attrs.field(factory=dict)  # Hadoop properties, for nodes without a Hadoop configuration
    gpu_dealing: Optional[GpuDealing] = None  # None: containers see the GPUs that their nodes assign
    training: str = ""  # identifier of the training, the same for all attempts
    labels: dict[str, str] = attrs.field(factory=dict)  # origin of the job (dag, run, task, …) for the event log
    submitted_ms: Optional[int] = None  # epoch milliseconds, by the clock of the Airflow side
    environment: dict[str, str] = attrs.field(factory=dict)  # variables of user processes; the job's own override them
    authority: str = ""  # PEM certificate of the authority for the application master; its private key is discarded
    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # other HDFS file systems for inputs, outputs and programs
    zone_offsets: list[ZoneOffset] = attrs.field(factory=list)  # UTC offsets for the job's windows; empty: UTC
    lost_nodes_dir: str = ""  # URI of the directory for records of nodes that lost containers; empty: no record
    avoided_nodes: list[str] = attrs.field(factory=list)  # nodes (host:port) that lost containers of other applications
    key_server: str = ""  # URI (kms://…) of the key server if the application has a token for it, otherwise empty
    fingerprint: dict[str, str] = attrs.field(factory=dict)  # hashes of what the training depends on, for its lineage
    lineage_file: str = ""  # URI of the training's lineage record; empty: no record
    hive_metastore: str = ""  # URI (thrift://…) of the metastore if the application has a token for it, otherwise empty
    version: int = 1

    def resources_of(self, task_type: str) -> list[LocalizedResource]:
        """Return the files for containers of a task type, without the runtime archive and this file."""
        return [*self.resources, *self.resources_by_type.get(task_type, [])]


REPLAY_FILE = "replay.json"


@attrs.frozen(kw_only=True)
class Replay:
    """One start of a task, with which the task runs again on one machine. All URIs name files of this machine."""

    description: ApplicationDescription
    task: str  # such as worker:3
    attempt: int
    start: int
    generation: int
    members: list[str]  # tasks of the cluster at that time, in the order of ranks
    alone: bool  # whether the process runs with rank 0 of 1, because its framework waits for all processes
    resume: Optional[ResumePoint] = None  # None if it starts at step 0
    kept: bool = False  # whether the process resumed from its own directory, whose stored state ``resume`` is
    parts: dict[str, str] = attrs.field(factory=dict)  # path of the list of shards, by input


class ContainerError(Exception):
    """The container's environment or files are incomplete. The message names the missing or malformed item."""


def required_variable(environ: Mapping[str, str], name: str) -> str:
    """Return the value of an environment variable. Raise ContainerError if it is not set."""
    value = environ.get(name)
    if not value:
        raise ContainerError(f"{name} is not set")
    return value


def packed_description(description: ApplicationDescription) -> bytes:
    """Return the description as ``read_description`` expects it in the secrets."""
    return zlib.compress(dump_json(description), 9)


def read_description(secrets: Mapping[str, bytes]) -> ApplicationDescription:
    """Return the description in a container's secrets. Raises ContainerError."""
    try:
        return load_json(zlib.decompress(secrets[contract.SECRET_DESCRIPTION]), ApplicationDescription)
    except (KeyError, zlib.error, CodecError) as error:
        raise ContainerError(f"cannot read {contract.SECRET_DESCRIPTION} in the credentials: {error!r}") from error


def take_credentials(environ: Mapping[str, str]) -> Credentials:
    """Read a container's token file and delete it. Raises ContainerError.

    A file that stayed could be read by any process of the same user on the node, or exposed by a server in the job.
    The file is not needed again, because each attempt of a master or task has its own container.
    """
    path = Path(required_variable(environ, contract.ENV_TOKEN_FILE))
    try:
        found = Credentials.read_file(path)
        path.unlink()
    except (OSError, CredentialsError) as error:
        raise ContainerError(str(error)) from error
    return found


SHARED_FILES = (contract.STATUS_FILE, contract.RESULT_FILE)
_SETTLED_AT_ONCE = 4  # number of files that are replaced concurrently
SHARED_DIRECTORIES = (contract.HISTORY_DIR, contract.LOGS_DIR)


def readers_of(job: JobSpec) -> Readers:
    """Return the users and groups that may view the job, in addition to its owner."""
    names = job.acls.viewers
    everybody = EVERYBODY in names.users
    return Readers(() if everybody else tuple(names.users), tuple(names.groups), everybody)


def shared_records(job: JobSpec, application_dir: str) -> Optional[SharedFiles]:
    """Return the records of an application that its viewers may read, or None if the job has no viewers."""
    readers = readers_of(job)
    if not readers:
        return None
    directory = uris.parse(application_dir)
    return SharedFiles(
        readers,
        files=frozenset(directory.child(name).path for name in SHARED_FILES),
        directories=frozenset(directory.child(name).path for name in SHARED_DIRECTORIES),
    )


def open_application_store(description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Storage:
    """Open the store of the application, with access to the job's other HDFS and object stores. The caller closes it.

    Sends no request yet. Raises StorageError.
    """
    token = secrets.get(contract.SECRET_STORE_TOKEN)
    tokens = other_tokens(secrets)
    storage = open_storage(
        description.application_dir,
        webhdfs=description.webhdfs,
        delegation_token=token.decode("ascii") if token else None,
        shared=shared_records(description.job, description.application_dir),
        others={
            each.name: WebHdfsStorage(each.webhdfs, delegation_token=tokens.get(each.name))
            for each in description.other_hdfs
        },
    )
    variables = {**description.environment, **description.job.env, **contract.user_secrets(secrets)}
    storage.object_store_variables = variables
    return storage


def clean_up(storage: Storage, application_dir: str) -> None:
    """Remove what an ended application no longer needs, but not its results. Idempotent. Raises StorageError."""
    clear_outputs(storage, application_dir)
    storage.remove(uris.join(application_dir, contract.LAUNCH_DIR), recursive=True)
    remove_leftovers(storage, application_dir, without=[contract.MODEL_DIR, contract.EXPORTS_DIR])
    exports = uris.join(application_dir, contract.EXPORTS_DIR)
    remove_leftovers(storage, exports, without=_whole_exports(storage, exports))


def settle(storage: Storage, application_dir: str) -> None:
    """Replace the records of an ended application (``Storage.write_record``) by ordinary files. Raises StorageError."""
    directories = [application_dir, *(uris.join(application_dir, name) for name in SHARED_DIRECTORIES)]
    files = [file for directory in directories for file in list_existing(storage, directory)]
    records = [file.path for file in files if not file.is_directory and not file.size]
    for _ in in_parallel(partial(_settle, storage), records, _SETTLED_AT_ONCE, "settle"):
        pass


def _settle(storage: Storage, uri: str) -> None:
    for _ in range(2):  # a reader of the result may remove the temporary file of the first attempt
        with suppress(StorageNotFound):
            if data := read_bytes(storage, uri):
                write_atomically(storage, uri, data)
            return


def clear_outputs(storage: Storage, application_dir: str) -> None:
    """Remove the temporary files that tasks have left next to the paths of outputs. Raises StorageError.

    Files on the job's own store are removed, and files on other stores if this process can reach those stores.
    """
    about = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        description = load_json(read_whole(storage, about, APPLICATION_LIMIT), ApplicationDescription)
    except StorageNotFound:
        return  # the application was already cleaned up
    except (CodecError, StorageTooLarge) as error:
        log.warning("cannot read %s, so temporary files next to its outputs remain: %s", about, error)
        return
    # The job's programs can overwrite the description. So the application's ID and the access to local disks must not
    # depend on the description.
    application_id, local = uris.name(application_dir), uris.scheme(application_dir) == "file"
    stores = JobStores(storage, application_dir)
    try:
        for spec in description.job.outputs.values():
            if uris.scheme(spec.path) == "file" and not local:
                continue  # the path is on the nodes, not on this machine
            try:
                clear_away(stores.of(spec.path), OutputPlace(spec.path, application_id))
            except StorageError:
                log.warning("could not remove temporary files next to %s", spec.path, exc_info=True)
    finally:
        stores.close()


def _whole_exports(storage: Storage, uri: str) -> list[str]:
    """Return the names of complete exports. Their content is never removed, because it belongs to the program."""
    found = list_existing(storage, uri)
    return [status.name for status in found if contract.step_of_export(status.name) is not None]
