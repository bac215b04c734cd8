"""The job specification: the only definition of what a job is, used on the Airflow side and on the nodes.

Each level of the specification is one attrs class, with one documented field per line. ``units`` and the folder
``parsing`` read and validate specifications.

Ranks start with the chief, then workers, then parameter servers. Tasks of all other roles are outside the cluster and
have no rank. Within a role, types keep the specified order, and tasks are ordered by index.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import NewType, Optional, Protocol

import attrs

from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.jobspec.placement import Placement, own_tags, targets
from tony_provider.runtime.jobspec.problems import child

Memory = NewType("Memory", int)
"""Memory in MiB. Written as ``4GiB``, ``512MiB`` or a plain number of MiB."""

Duration = NewType("Duration", float)
"""A time in seconds. Written as ``90s``, ``15m``, ``2h``, ``1d`` or a plain number of seconds."""

Moment = NewType("Moment", float)
"""A point in time, in seconds since the epoch. Written as ISO 8601 with a time zone: ``2026-11-21T18:00:00+01:00``."""

Tolerance = NewType("Tolerance", str)
"""Number of tasks that may fail permanently (``3``), or a percentage of the tasks (``5%``)."""

NO_TOLERANCE = Tolerance("0")

OpenHours = NewType("OpenHours", str)
"""Hours of the week: days, times of day, or both, such as ``Mon-Fri 22:00-06:00``. See opening_hours."""

PythonEnv = NewType("PythonEnv", str)
"""Path or URI of the Python that runs commands, or comma-separated paths or URIs of wheels. See ``python_env``."""

Processes = NewType("Processes", str)
"""Number of user processes in a container: an integer of at least 1, or ``gpus``."""

PER_GPU = Processes("gpus")  # one process for each GPU of the container


class Role(str, Enum):
    """Role of a task type, which determines how its tasks end. Defaults to the type's name, or ``worker``.

    "Cluster" is the cluster that the framework forms from the job's tasks.
    """

    CHIEF = "chief"  # tracked; its end also ends a parameter-server job
    WORKER = "worker"  # tracked: each must succeed
    PS = "ps"  # runs until it is stopped at the end; its failure fails the job
    EVALUATOR = "evaluator"  # not in the cluster; may outlive tracked tasks by timeouts.evaluator; must not fail
    ONCE = "once"  # not in the cluster; ends by itself, must succeed, and does not run again after success
    SIDECAR = "sidecar"  # not in the cluster; stopped at the end; its failure is only reported

    @property
    def is_tracked(self) -> bool:
        """Whether the job waits until tasks of this role end by themselves."""
        return self in (Role.CHIEF, Role.WORKER)


TENSORBOARD = "tensorboard"  # the task type of the key ``tensorboard``
PREPARE = "prepare"  # the task type that all others wait for
_ROLE_BY_NAME = {**{role.value: role for role in Role}, TENSORBOARD: Role.SIDECAR, PREPARE: Role.ONCE}


class RestartScope(str, Enum):
    """Tasks that restart if a task of a type fails. Defaults to what the framework needs, see Framework.scope."""

    GANG = "gang"  # every task of the cluster, from the newest checkpoint, in the remaining containers
    TASK = "task"  # only the failed task; the others continue
    NEVER = "never"  # no task: the failure fails the job (the failure of a sidecar is only reported)


class Milestone(str, Enum):
    """State that all tasks of a type must reach before the tasks that wait for them start."""

    STARTED = "started"  # their user processes are running
    READY = "ready"  # their readiness probes have also succeeded
    SUCCEEDED = "succeeded"


class SuccessRule(str, Enum):
    """Rule for which deciding tasks (chief and workers) must succeed. Defaults to Framework.decisive."""

    CHIEF = "chief"  # the chief; then the workers are stopped
    ALL = "all"  # the chief and all workers
    ANY = "any"  # the first task to succeed: a search that needs one result


class StartRule(str, Enum):
    """Rule for when the tasks of a job start."""

    GANG = "gang"  # together, once all containers are allocated, because the tasks need each other
    FIRST_COME = "first-come"  # each as soon as its container is allocated, because not all may fit at the same time


class GrowRule(str, Enum):
    """Condition on which a type grows beyond its ``instances`` while the job runs."""

    ASKED = "asked"  # only a request to resize the job
    SPARE = "spare"  # also spare capacity of the queue, which is released when the cluster needs it


class MirrorScope(str, Enum):
    """Tasks whose checkpoint directories are stored while the job runs."""

    AUTO = "auto"  # every task with a rank that writes checkpoints
    LEADER = "leader"  # the chief, or rank 0 if there is no chief
    ALL = "all"  # as auto, but requests for a checkpoint go to all of these tasks instead of only the leader
    OFF = "off"  # no task: the program writes to the store itself, below TONY_CHECKPOINT_URI


class CheckpointFormat(str, Enum):
    """Format by which complete checkpoints are recognized."""

    AUTO = "auto"  # every format below
    TENSORFLOW = "tensorflow"  # tf.train.Checkpoint: state file, index, every data shard
    KERAS = "keras"  # .keras files, and the files of BackupAndRestore
    PYTORCH = "pytorch"  # files of torch.save, and directories of shards
    ORBAX = "orbax"  # step directories
    NUMPY = "numpy"  # .npz and .npy files; with auto only if no other format is found
    MANIFEST = "manifest"  # files that a manifest names, see tony_sdk.commit_checkpoint


class AfterSuccess(str, Enum):
    """Checkpoints that a checkpoint chain keeps after the job has succeeded."""

    KEEP_LAST = "keep-last"  # the newest one
    KEEP_ALL = "keep-all"  # every checkpoint that keep and keep_every have kept
    REMOVE = "remove"  # none


_MOST_PORTS = 1000  # number of ports to try


@attrs.frozen
class PortRange:
    """Range of ports that the master and the tasks may listen on, both ends included. Written as ``20000-31999``."""

    first: int
    last: int

    def shuffled(self) -> list[int]:
        """Return the ports in random order, or 1000 of them if there are more."""
        every = range(self.first, self.last + 1)
        return random.sample(every, min(len(every), _MOST_PORTS))


STORED = "stored:"  # prefix of a source that is looked up only on the job's store


def unmarked(source: str) -> tuple[str, bool]:
    """Return a source without the prefix ``STORED``, and whether the source had this prefix."""
    stored = source.startswith(STORED)
    return (source[len(STORED) :] if stored else source), stored


@attrs.frozen
class Resource:
    """File or archive for the working directory of tasks.

    Written as ``SRC`` or ``SRC::NAME``, optionally with the prefix ``STORED``.
    """

    source: str  # path (relative to the DAG's folder) or URI of the job's store
    name: Optional[str] = None  # name in the working directory; default: the last part of source
    stored: bool = False  # look the source up only on the job's store, never on the machine that submits the job

    @property
    def target(self) -> str:
        """Name of the resource in the working directory; empty if the source has no last part."""
        return self.name if self.name is not None else self.source.rstrip("/").rpartition("/")[2]


@attrs.frozen
class Windows:
    """Hours in which the job may have containers; otherwise it is suspended. May be written as a list, in UTC."""

    open: list[OpenHours]  # hours of the week; hours that end before they begin extend into the next day
    zone: str = "UTC"  # time zone of these hours, by its IANA name: Europe/Berlin


class PidNamespace(str, Enum):
    """Processes that a container in an image can see."""

    HOST = "host"  # all processes of its node


class ContainerRuntime(str, Enum):
    """Runtime by which a NodeManager starts containers."""

    DOCKER = "docker"  # the node's Docker, from an image
    RUNC = "runc"  # runc, from an image whose layers an administrator has put on HDFS; Hadoop 3.3 or later
    NONE = "none"  # no image: plain processes of the node


@attrs.frozen
class Docker:
    """Image of containers, if NodeManagers allow images. Missing keys default to the job's ``docker``, then to YARN."""

    image: Optional[str] = None  # name for the nodes' Docker; required, in the job or in the type
    mounts: Optional[list[str]] = None  # source:target:mode; default: none
    runtime: Optional[ContainerRuntime] = None  # default: docker
    tmpfs: Optional[list[str]] = None  # in-memory directories, such as /dev/shm; default: none
    network: Optional[str] = None  # a Docker network, or host; default: the default of the nodes
    privileged: Optional[bool] = None  # access to all devices and capabilities of the node; default: false
    pid_namespace: Optional[PidNamespace] = None  # default: a separate namespace for the container
    oci_runtime: Optional[str] = None  # OCI runtime of Docker, such as nvidia; default: Docker's own
    delayed_removal: Optional[bool] = None  # keep ended containers for a while, for inspection; default: false
    client_config: Optional[str] = (
        None  # config.json with credentials of registries; only allowed in the job's section ``docker``
    )


_AM_MEMORY = 512  # MiB, for an application master of up to a thousand tasks
_AM_MEMORY_PER_THOUSAND = 200  # MiB; 1.5 times the need that `make bench ONLY=scale` measures


@attrs.frozen
class AmSpec:
    """Container of the application master."""

    memory: Optional[Memory] = None  # MiB; default: 512MiB, plus 200MiB per thousand tasks after the first thousand
    vcores: int = 1
    node_label: Optional[str] = None  # default: the job's
    attempts: int = 2  # limit for starts by YARN, capped by the cluster; each new attempt adopts the running tasks
    attempts_window: Duration = Duration(3600)  # seconds until a failure no longer counts (YARN's validity interval)
    docker: Optional[Docker] = None  # merged over the job's docker; false: a plain process


@attrs.frozen
class ReadinessProbe:
    """Check that a task's program is ready for other tasks: exactly one of these conditions, polled while it runs."""

    command: Optional[str] = None  # command that exits with 0, run like the task's command
    port: Optional[int] = None  # port on the task's node that accepts connections; 0: the task's TONY_PORT
    file: Optional[str] = None  # file that exists; relative to the working directory


@attrs.frozen
class TaskSpec:
    """Task type: ``instances`` containers that run the same command and differ by their index."""

    command: str = ""  # run by /bin/sh in the working directory; some frameworks have a default for some roles
    instances: int = 1
    memory: Memory = Memory(2048)  # MiB, the container's limit, including some 60 MiB for the executor
    vcores: int = 1
    gpus: int = 0  # number of GPUs, YARN's resource yarn.io/gpu
    resources: dict[str, ResourceAmount] = attrs.field(factory=dict)  # other resources of the cluster, by YARN's names
    node_label: Optional[str] = None  # default: the job's
    placement: Optional[Placement] = None  # nodes, and rules for containers on the same node or rack; default: any node
    docker: Optional[Docker] = None  # merged over the job's docker, key by key; false: plain processes
    env: dict[str, str] = attrs.field(factory=dict)  # merged over the job's env
    secrets: list[str] = attrs.field(factory=list)  # job secrets that are reserved for the types naming them
    role: Optional[Role] = None  # default: according to the type's name
    after: dict[str, Milestone] = attrs.field(factory=dict)  # task types that must reach a milestone first
    ready: Optional[ReadinessProbe] = None  # readiness of this type, for types that wait for it
    decides: bool = True  # false: the job does not wait for workers of this type; their failure still counts
    wait_for_children: bool = False  # the task ends only when all processes that its command started have ended
    restart: Optional[RestartScope] = None  # scope of a restart after a failure; default: as the framework needs
    processes: Processes = Processes("1")  # user processes per container, each with a rank; gpus: one for each GPU
    min_instances: Optional[int] = None  # fewest tasks to continue with if lost tasks cannot be replaced; default: all
    max_instances: Optional[int] = None  # most tasks that it may be resized to; default: it cannot be resized
    grow: GrowRule = GrowRule.ASKED  # spare: also grows by itself, up to max_instances, while there is spare capacity
    python_env: Optional[PythonEnv] = None  # Python for its command; default: the job's
    files: list[Resource] = attrs.field(factory=list)  # in addition to the job's
    archives: list[Resource] = attrs.field(factory=list)  # in addition to the job's

    @property
    def process_count(self) -> int:
        """Number of user processes in each container, at least one."""
        return max(1, self.gpus if self.processes == PER_GPU else int(self.processes))

    @property
    def most_instances(self) -> int:
        """Largest number of tasks that the type may be resized to."""
        return self.instances if self.max_instances is None else self.max_instances

    @property
    def least_instances(self) -> int:
        """Smallest number of tasks of the type with which the job continues."""
        return self.instances if self.min_instances is None else self.min_instances


def role_of(task_type: str, task: TaskSpec) -> Role:
    """Return the task's ``role``, otherwise the role that its type's name implies, otherwise worker."""
    return task.role if task.role is not None else _ROLE_BY_NAME.get(task_type, Role.WORKER)


@attrs.frozen
class Timeouts:
    """Time limits of the job, in seconds, except for ``deadline``, which is a point in time."""

    queue: Optional[Duration] = None  # time to wait for the containers of the whole gang; default: no limit
    allocation: Duration = Duration(120)  # time until a partly allocated gang releases its containers and retries
    registration: Duration = Duration(300)  # time from launch to the executor's registration, including file copies
    lifetime: Optional[Duration] = None  # time for the application, as YARN's application lifetime; default: no limit
    grace: Duration = Duration(30)  # time between SIGTERM and SIGKILL of a user process
    evaluator: Duration = Duration(60)  # time for evaluators to continue after the last tracked task succeeded
    deadline: Optional[Moment] = None  # point in time that ends the application, as lifetime does; default: none
    replacement: Duration = Duration(300)  # time to replace a container; then continue with fewer tasks or release all
    dependency: Optional[Duration] = None  # time for a task type to wait for others (after); default: no limit
    spare: Duration = Duration(300)  # time for which spare capacity must last before a job requests it (grow)
    stall: Optional[Duration] = None  # time without a new step after which a tracked task fails; default: no limit
    checkpoint: Duration = Duration(60)  # time for the last copy of a checkpoint after the user process has ended
    upload: Duration = Duration(1800)  # time to store and commit the model and result of a successful process


@attrs.frozen
class RestartPolicy:
    """Limits of restarts within the job: how many, the delay before each, and the memory to add."""

    budget: int = 3  # number of restarts without progress within the window
    same_failure: int = 1  # number of restarts after equal failures of a program without progress in between
    window: Duration = Duration(3600)  # seconds; older restarts do not count
    backoff: Duration = Duration(5)  # seconds before the second restart without progress; doubles each time
    max_backoff: Duration = Duration(300)  # seconds, limit of the doubled delay
    permanent_exit_codes: list[int] = attrs.field(factory=list)  # exit codes after which user processes do not restart
    memory_step: Optional[Memory] = None  # added to the container after an out-of-memory kill; default: none
    memory_limit: Optional[Memory] = None  # limit for memory_step; default: twice the type's memory
    node_losses: int = 2  # lost containers after which a node is avoided, if other nodes remain; 0: avoid none


@attrs.frozen
class CheckpointSpec:
    """Checkpoints that a running job copies to the store once they are complete, so that it can resume from them."""

    mirror: MirrorScope = MirrorScope.AUTO
    format: CheckpointFormat = CheckpointFormat.AUTO
    keep: int = 2  # number of newest checkpoints to keep
    keep_every: Optional[int] = None  # also keep checkpoints whose step is a multiple of this; default: keep no others
    after_success: AfterSuccess = AfterSuccess.KEEP_LAST
    bandwidth: Optional[Memory] = None  # MiB/s that one task copies at most; default: no limit
    max_size: Optional[Memory] = None  # MiB; larger checkpoint directories of a task are not stored; default: no limit
    exclude: list[str] = attrs.field(factory=list)  # glob patterns of paths that checkpoints leave out
    shared: bool = False  # all tasks share one directory, on a file system that all nodes mount

    @property
    def stored(self) -> MirrorScope:
        """Tasks whose checkpoint directories are stored. Only the leader stores a ``shared`` directory."""
        return MirrorScope.LEADER if self.shared else self.mirror


@attrs.frozen
class ExportSpec:
    """Exports of the unfinished model, which the leading task's program writes on request."""

    every: Optional[int] = None  # request an export after this many committed checkpoints; default: only on demand
    keep_last: int = 3  # number of newest exports to keep on the store


@attrs.frozen
class LogSpec:
    """Limits for the output of a task, on its node."""

    max_size: Optional[Memory] = None  # MiB of its stdout and stderr together; default: the connection's, or 64


@attrs.frozen
class TensorBoardSpec:
    """TensorBoard sidecar for the event files in the tasks' TONY_TENSORBOARD_DIR. May be written as ``true``."""

    memory: Memory = Memory(1024)  # MiB, the container's limit
    vcores: int = 1
    node_label: Optional[str] = None  # default: the job's
    env: dict[str, str] = attrs.field(factory=dict)  # merged over the job's env
    docker: Optional[Docker] = None  # merged over the job's docker; false: a plain process


EVERYBODY = "*"  # all users, if it is the only user of an access list


@attrs.frozen
class AccessNames:
    """Users and groups, named as on the cluster."""

    users: list[str] = attrs.field(factory=list)  # ``*`` as the only user: all users
    groups: list[str] = attrs.field(factory=list)


@attrs.frozen
class AclSpec:
    """Users who may view or modify the job, in addition to its owner and the cluster's administrators."""

    view: AccessNames = attrs.field(factory=AccessNames)  # may view its page, status, logs and history
    modify: AccessNames = attrs.field(factory=AccessNames)  # may also stop it, or request a checkpoint or export

    @property
    def viewers(self) -> AccessNames:
        """Users and groups who may view the job, including users and groups who may modify it."""
        users = list(dict.fromkeys([*self.view.users, *self.modify.users]))
        if EVERYBODY in users:
            return AccessNames([EVERYBODY])
        return AccessNames(users, list(dict.fromkeys([*self.view.groups, *self.modify.groups])))


class InputDeal(str, Enum):
    """Method by which the shards of an input are distributed to tasks."""

    STATIC = "static"  # each task reads a fixed share of the shards, balanced by size
    QUEUE = "queue"  # each idle task requests the next shard; each shard is committed exactly once
    NONE = "none"  # the program finds the files by itself; they are listed only for the lineage record


class InputFormat(str, Enum):
    """Content of an input's files, which determines how they are split into shards and records."""

    FILES = "files"  # any content: each file is a shard, and the program reads it
    LINES = "lines"  # text, CSV, JSON lines: a record ends with a newline
    TFRECORD = "tfrecord"  # TensorFlow's records
    PARQUET = "parquet"  # row groups
    ICEBERG = "iceberg"  # a table of Iceberg, whose Parquet files are split like those of parquet


@attrs.frozen
class InputSpec:
    """Files that are listed once and distributed to tasks as shards, i.e. files or parts. May be written as a path."""

    # URIs or absolute paths: files, directories, or patterns with ``*``, ``?``, ``[…]``, ``**``. For a table, the
    # submission sets the URI of the list of its files.
    paths: list[str] = attrs.field(factory=list)
    deal: InputDeal = InputDeal.STATIC
    tasks: list[str] = attrs.field(factory=list)  # types that read it; default: chief and workers with a command
    fetch: bool = False  # copy shards to the node of their task, for programs that cannot read the store
    format: InputFormat = InputFormat.FILES
    split_size: Optional[Memory] = None  # approximate MiB of a shard; files are split at records; default: no split
    checksum: bool = False  # list the store's checksum of each file, if it has one
    table: Optional[str] = None  # instead of paths: database.table in the metastore; Hive, or Iceberg if format says so
    partitions: Optional[str] = None  # filter for a Hive table, such as ds = '2026-11-01'; default: every partition
    snapshot: Optional[int] = None  # id of an Iceberg table's snapshot; default: the current one


class OutputCommit(str, Enum):
    """Rule for when the files that tasks leave for an output appear at its path."""

    JOB = "job"  # all files together, when the job has succeeded
    TASK = "task"  # each task's files when that task has succeeded


class OutputLayout(str, Enum):
    """Directories in which the tasks' files are stored below the path of an output."""

    TASKS = "tasks"  # in a directory for each task: worker-3/
    FLAT = "flat"  # all tasks' files in one directory


@attrs.frozen
class OutputSpec:
    """Directory of the store that tasks write through a local directory. May be written as its path."""

    path: str  # URI or absolute path; has ``_SUCCESS`` once the job has succeeded and all files are there
    tasks: list[str] = attrs.field(factory=list)  # types that write it; default: chief and workers with a command
    commit: OutputCommit = OutputCommit.JOB
    layout: OutputLayout = OutputLayout.TASKS
    replace: bool = False  # replace existing files; default: only files that the same training wrote


class Preflight(str, Enum):
    """Extent of the checks before user processes start."""

    NODE = "node"  # the task's own node
    NETWORK = "network"  # the node, and the network between all tasks of the cluster


@attrs.frozen
class HadoopSpec:
    """Access to Hadoop for user processes. May be written as ``true``."""

    hive: bool = False  # also a token of the connection's Hive metastore


class Network(str, Enum):
    """Declared reachability of the ports on which a job's processes listen."""

    TRUSTED = "trusted"  # also reachable by other users, and all of them are trusted like the job's user
    ISOLATED = "isolated"  # reachable only by the job's processes: Docker networks, firewalls, a dedicated cluster


@attrs.frozen
class JobSpec:
    """Specification of a distributed training job."""

    framework: str  # tensorflow | pytorch | jax | xgboost | ray | horovod | mpi | mxnet | generic | standalone
    tasks: dict[str, TaskSpec]  # by type: chief, worker, ps, evaluator, or any name
    name: str = "training"
    preset: Optional[str] = None  # name of a partial job of the connection, merged under this one; default: none
    success: Optional[SuccessRule] = None  # which tasks must succeed; default: what the framework needs
    start: StartRule = StartRule.GANG  # when tasks start: together, or each with its container
    tolerated_failures: Tolerance = NO_TOLERANCE  # workers that may fail permanently: a number (3) or percentage (5%)
    queue: Optional[str] = None  # YARN queue; default: the connection's, or YARN's own placement
    priority: Optional[int] = None
    node_label: Optional[str] = None
    tags: list[str] = attrs.field(factory=list)  # YARN application tags, in addition to the runtime's
    am: AmSpec = attrs.field(factory=AmSpec)
    files: list[Resource] = attrs.field(factory=list)  # files for all tasks; a directory includes everything below it
    archives: list[Resource] = attrs.field(factory=list)  # unpacked into a directory of the given name
    python_env: Optional[PythonEnv] = None  # directory on the nodes, archive, PEX or wheels: see container_content
    docker: Optional[Docker] = None  # image of all containers, including the master's; default: plain processes
    env: dict[str, str] = attrs.field(factory=dict)  # variables of the user processes
    secrets: list[str] = attrs.field(factory=list)  # names of secrets; the containers' credentials contain the values
    acls: AclSpec = attrs.field(factory=AclSpec)  # users who may view or modify the job
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    windows: Optional[Windows] = None  # when the job may have containers; default: always
    restart: RestartPolicy = attrs.field(factory=RestartPolicy)
    checkpoint: CheckpointSpec = attrs.field(factory=CheckpointSpec)
    export: ExportSpec = attrs.field(factory=ExportSpec)
    logs: LogSpec = attrs.field(factory=LogSpec)
    hadoop: Optional[HadoopSpec] = None  # user processes get HDFS tokens, configuration and class path of Hadoop
    tensorboard: Optional[TensorBoardSpec] = None  # true: TensorBoard with its defaults; None or false: no TensorBoard
    inputs: dict[str, InputSpec] = attrs.field(factory=dict)  # files to distribute to tasks as shards, by name
    outputs: dict[str, OutputSpec] = attrs.field(factory=dict)  # directories that the tasks write, by name
    preflight: Optional[bool] = None  # check nodes and network before each start; default: only after a lost container
    network: Optional[Network] = None  # who can reach the processes' ports; default: the connection's, or a warning
    port_range: PortRange = PortRange(20000, 31999)  # below Linux's ephemeral ports, to avoid collisions

    @property
    def most_failures(self) -> int:
        """Number of tolerated worker failures. A percentage refers to all workers and is rounded down."""
        share, percent, _ = self.tolerated_failures.partition("%")
        if not percent:
            return int(share)
        workers = sum(task.instances for name, task in self.tasks.items() if self.role(name) is Role.WORKER)
        return int(workers * Fraction(share) / 100)

    def waits_for(self, task_type: str) -> dict[str, Milestone]:
        """Return the types that a task type waits for, with milestones: its ``after``, and the type ``prepare``."""
        everybody = {PREPARE: Milestone.SUCCEEDED} if PREPARE in self.tasks and task_type != PREPARE else {}
        return {**everybody, **self.tasks[task_type].after}

    def minimum_containers(self, task_type: str) -> int:
        """Return how many containers of a type must run at the same time for the job to continue."""
        task = self.tasks[task_type]
        role = self.role(task_type)
        if self.start is StartRule.FIRST_COME and (role.is_tracked or role is Role.ONCE):
            return min(1, task.instances)
        return task.least_instances

    def placed_by_rules(self, task_type: str) -> bool:
        """Return whether rules place a type's containers: its own rules, or rules of other types that name its tags.

        Raises ValueError if a rule names an invalid tag.
        """
        own = self.tasks[task_type].placement
        if own is not None and own.by_rules:
            return True
        tags = set(own_tags(task_type, own))
        rules = [task.placement for task in self.tasks.values() if task.placement is not None]
        return any(target.own and target.tag in tags for placement in rules for target in targets(placement))

    def secrets_withheld(self, task_type: str) -> set[str]:
        """Return the names of the secrets that a task type does not receive, because only other types name them."""
        return {name for task in self.tasks.values() for name in task.secrets} - {*self.tasks[task_type].secrets}

    def python_env_of(self, task_type: str) -> Optional[PythonEnv]:
        """Return the Python environment of a task type, by default the job's. None means the Python of the nodes."""
        own = self.tasks[task_type].python_env
        return self.python_env if own is None else own

    def role(self, task_type: str) -> Role:
        """Return the role of a task type. Raises KeyError if it is not in ``tasks``."""
        return role_of(task_type, self.tasks[task_type])

    def readers(self, name: str) -> list[str]:
        """Return the task types that read an input, in the job's order. Raises KeyError if it is not in ``inputs``.

        A type without ``command`` runs the framework's command, so it reads an input only if the input names the type.
        """
        spec = self.inputs[name]
        return [] if spec.deal is InputDeal.NONE else self._those_of(spec.tasks)

    def writers(self, name: str) -> list[str]:
        """Return the task types that write an output, in the job's order. Raises KeyError if ``outputs`` lacks it."""
        return self._those_of(self.outputs[name].tasks)

    def _those_of(self, named: list[str]) -> list[str]:
        able = [each for each, task in self.tasks.items() if self.role(each).is_tracked and task.command]
        return [each for each in self.tasks if each in (named or able)]

    @property
    def size(self) -> int:
        """Largest number of tasks that the job has, or may be resized to."""
        return sum(task.most_instances for task in self.tasks.values())

    @property
    def am_memory(self) -> Memory:
        """MiB of the application master's container: ``am.memory``, or a default that depends on the job's size."""
        if self.am.memory is not None:
            return self.am.memory
        return Memory(_AM_MEMORY + -(-_AM_MEMORY_PER_THOUSAND * max(0, self.size - 1000) // 1000))

    @property
    def roles(self) -> dict[str, Role]:
        """Role of every task type, in the specified order."""
        return {task_type: self.role(task_type) for task_type in self.tasks}


_ORDER = {Role.CHIEF: 0, Role.WORKER: 1, Role.PS: 2}


class RankedTask(Protocol):
    """Task that can be ranked by its type, index and role, such as ``frameworks.base.TaskAddress``."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def role(self) -> Role: ...


def in_cluster(role: Role) -> bool:
    """Return whether tasks of this role belong to the cluster, and so have a rank."""
    return role in _ORDER


def saves_checkpoints(role: Role) -> bool:
    """Return whether tasks of this role store checkpoints. Parameter servers do not: other tasks send their values."""
    return in_cluster(role) and role is not Role.PS


def ranks(tasks: Iterable[RankedTask]) -> dict[tuple[str, int], int]:
    """Return the rank of each task of the cluster, by type and index. ``tasks`` must be sorted by type, then index."""
    ordered = sorted((task for task in tasks if in_cluster(task.role)), key=lambda task: _ORDER[task.role])
    return {(task.type, task.index): rank for rank, task in enumerate(ordered)}


def leading_type(roles: Mapping[str, Role]) -> Optional[str]:
    """Return the type whose task 0 has rank 0. This task provides the job's model and metrics.

    ``roles`` are by type, in the specified order. Returns None if no task is in the cluster.
    """
    types = [task_type for task_type, role in roles.items() if in_cluster(role)]
    return min(types, key=lambda task_type: _ORDER[roles[task_type]], default=None)


def succeeded_before(job: JobSpec, task_type: str) -> frozenset[str]:
    """Return the types that have succeeded when this type starts, including indirect dependencies."""
    found: set[str] = set()
    seen, left = {task_type}, [task_type]
    while left:
        for other, milestone in job.waits_for(left.pop()).items():
            if milestone is Milestone.SUCCEEDED:
                found.add(other)
            if other in job.tasks and other not in seen:
                seen.add(other)
                left.append(other)
    return frozenset(found)


RESIZE_EXAMPLE = '{"worker": 4}'
RESIZE_EXAMPLE_WORDS = "worker=4"


def resize_refusal(job: JobSpec, counts: Mapping[str, int]) -> Optional[str]:
    """Return why a job cannot be resized to these numbers of tasks, and what to do. Return None if it can."""
    if not counts:
        return f"tasks: give the number of tasks for at least one type, such as {RESIZE_EXAMPLE}"
    for task_type, number in counts.items():
        path = child("tasks", task_type)
        if task_type not in job.tasks:
            return f"{path}: the job has no such task type; it has {', '.join(job.tasks)}"
        task = job.tasks[task_type]
        if task.max_instances is None:
            return f"{path}: cannot be resized, because the job sets no max_instances for this type"
        if not task.least_instances <= number <= task.max_instances:
            least = "instances" if task.min_instances is None else "min_instances"
            return (
                f"{path}: {number} is not between {task.least_instances} and {task.max_instances}, "
                f"the job's {least} and max_instances"
            )
    return None
