"""The job specification: the only definition of what a job is, used on the Airflow side and on the nodes.

One attrs class per level, one documented field per line. Parsing, units, merging and validation stand beside it.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import NewType, Optional

import attrs

from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.jobspec.placement import Placement, own_tags, targets

Memory = NewType("Memory", int)
"""Memory in MiB. Written as ``4GiB``, ``512MiB`` or a plain number of MiB."""

Duration = NewType("Duration", float)
"""A time in seconds. Written as ``90s``, ``15m``, ``2h``, ``1d`` or a plain number of seconds."""

Moment = NewType("Moment", float)
"""A point in time, in seconds since the epoch. Written as ISO 8601 with a time zone: ``2026-11-21T18:00:00+01:00``."""

Tolerance = NewType("Tolerance", str)
"""How many of some tasks may fail for good: ``3``, or a share of them, ``5%``."""

NO_TOLERANCE = Tolerance("0")

OpenHours = NewType("OpenHours", str)
"""Hours of the week: days, hours, or both, ``Mon-Fri 22:00-06:00``; see opening_hours."""

PythonEnv = NewType("PythonEnv", str)
"""Where the Python of commands is: a path or URI; of wheels also several, with commas between. See ``python_env``."""

Processes = NewType("Processes", str)
"""How many user processes a container runs: a whole number, at least 1, or ``gpus``."""

PER_GPU = Processes("gpus")  # one process for each GPU of the container


class Role(str, Enum):
    """What a task type means for the job's end. Defaults to the role that its name says, else ``worker``."""

    CHIEF = "chief"  # tracked; in a parameter-server job its end is the job's
    WORKER = "worker"  # tracked: each must succeed
    PS = "ps"  # never ends by itself; stopped at the end, its failure fails the job
    EVALUATOR = "evaluator"  # outside the others' cluster; stopped some time after the end, its failure fails the job
    ONCE = "once"  # outside the others' cluster; ends by itself, must succeed, and is not run again after that
    SIDECAR = "sidecar"  # outside the others' cluster; stopped at the end, its failure is only reported

    @property
    def is_tracked(self) -> bool:
        """Whether the job waits for tasks of this role to end by themselves."""
        return self in (Role.CHIEF, Role.WORKER)


TENSORBOARD = "tensorboard"  # the task type of the key ``tensorboard``
PREPARE = "prepare"  # the task type that all others wait for
_ROLE_BY_NAME = {**{role.value: role for role in Role}, TENSORBOARD: Role.SIDECAR, PREPARE: Role.ONCE}


class RestartScope(str, Enum):
    """What starts again when a task of a type fails. Defaults to what the framework needs, see Framework.scope."""

    GANG = "gang"  # every task of the cluster, from the newest checkpoint, in the containers that are still there
    TASK = "task"  # this one only; the others go on
    NEVER = "never"  # nothing: its failure is the job's (a side-car's is reported)


class Milestone(str, Enum):
    """How far all tasks of a type must be for those that wait for it to begin."""

    STARTED = "started"  # their user processes run
    READY = "ready"  # and their readiness probes have succeeded
    SUCCEEDED = "succeeded"


class SuccessRule(str, Enum):
    """Which of the chief and the workers that decide must succeed. Defaults to Framework.decisive."""

    CHIEF = "chief"  # the chief; workers are stopped then
    ALL = "all"  # chief and workers, all of them
    ANY = "any"  # the first one: a search that needs one result


class StartRule(str, Enum):
    """When the tasks of a job begin."""

    GANG = "gang"  # all together, once every container is there: they need each other
    FIRST_COME = "first-come"  # each as soon as its container is there: more tasks than fit at a time


class GrowRule(str, Enum):
    """What makes a type larger than its ``instances`` while the job runs."""

    ASKED = "asked"  # somebody's word alone
    SPARE = "spare"  # also what the queue has to spare; it is given back when the cluster wants it


class MirrorScope(str, Enum):
    """The tasks whose checkpoint directories are stored while the job runs."""

    AUTO = "auto"  # every task with a rank that writes checkpoints
    LEADER = "leader"  # the chief, or else rank 0
    ALL = "all"  # as auto; requests for a checkpoint go to all of them, and not to the leader alone
    OFF = "off"  # none: the program writes to the storage itself, below TONY_CHECKPOINT_URI


class CheckpointFormat(str, Enum):
    """How complete checkpoints are told from others."""

    AUTO = "auto"  # every format below is looked for
    TENSORFLOW = "tensorflow"  # tf.train.Checkpoint: state file, index, every data shard
    KERAS = "keras"  # .keras files, and what BackupAndRestore keeps
    PYTORCH = "pytorch"  # files of torch.save, and directories of shards
    ORBAX = "orbax"  # step directories
    NUMPY = "numpy"  # .npz and .npy files; with auto only where there is nothing else
    MANIFEST = "manifest"  # whatever a manifest names, see tony_sdk.commit_checkpoint


class AfterSuccess(str, Enum):
    """What stays of a checkpoint chain once the job has succeeded."""

    KEEP_LAST = "keep-last"  # the newest
    KEEP_ALL = "keep-all"  # all that keep and keep_every left
    REMOVE = "remove"  # none


@attrs.frozen
class PortRange:
    """Ports that the application master and the tasks may listen on, both ends included. Written as ``20000-31999``."""

    first: int
    last: int


STORED = "stored:"  # mark before a source that is looked up only on the job's store


def unmarked(source: str) -> tuple[str, bool]:
    """Return a source without the mark ``STORED``, and whether it had the mark."""
    stored = source.startswith(STORED)
    return (source[len(STORED) :] if stored else source), stored


@attrs.frozen
class Resource:
    """A file or archive that every task finds in its working directory.

    Written as ``SRC`` or ``SRC::NAME``, with or without ``STORED`` before it.
    """

    source: str  # a path (relative ones resolve against the DAG's folder), or a URI of the job's storage
    name: Optional[str] = None  # its name in the working directory; default: the last part of source
    stored: bool = False  # look the source up only on the job's store, never on the machine that submits the job

    @property
    def target(self) -> str:
        """The resource's name in the working directory; empty when the source has no last part to take it from."""
        return self.name if self.name is not None else self.source.rstrip("/").rpartition("/")[2]


@attrs.frozen
class Windows:
    """When the job may have containers; outside of these hours it is suspended. Written as a list, or with its zone."""

    open: list[OpenHours]  # hours of the week; those that end before they begin go on into the next day
    zone: str = "UTC"  # by whose clocks, as the IANA names it: Europe/Berlin


class PidNamespace(str, Enum):
    """Whose processes a container in an image sees."""

    HOST = "host"  # all of its node


class ContainerRuntime(str, Enum):
    """What a NodeManager starts containers by."""

    DOCKER = "docker"  # the node's Docker, from an image
    RUNC = "runc"  # runc, from an image whose layers an administrator has put on HDFS; Hadoop 3.3 and newer
    NONE = "none"  # nothing: as plain processes of the node


@attrs.frozen
class Docker:
    """The image that containers run in, where the NodeManagers allow it. What is not given is the job's, or YARN's."""

    image: Optional[str] = None  # its name, as the nodes' Docker knows it; required, of the job or of the type
    mounts: Optional[list[str]] = None  # source:target:mode; default: none
    runtime: Optional[ContainerRuntime] = None  # default: docker
    tmpfs: Optional[list[str]] = None  # directories that are in memory, such as /dev/shm; default: none
    network: Optional[str] = None  # a network of Docker's, or host; default: the nodes' own default
    privileged: Optional[bool] = None  # with all of the node's devices and capabilities; default: false
    pid_namespace: Optional[PidNamespace] = None  # default: one of the container's own
    oci_runtime: Optional[str] = None  # by which Docker starts the image, such as nvidia; default: Docker's own
    delayed_removal: Optional[bool] = None  # what has ended is kept for a while, to be looked at; default: false
    client_config: Optional[str] = None  # a config.json of Docker's client: credentials of registries; the job's only


_AM_MEMORY = 512  # MiB, of an application master with up to a thousand tasks
_AM_MEMORY_PER_THOUSAND = 200  # MiB; `make bench ONLY=scale` measures what is needed


@attrs.frozen
class AmSpec:
    """The application master's own container."""

    memory: Optional[Memory] = None  # MiB; default: 512MiB, and 200MiB more for each thousand tasks after the first
    vcores: int = 1
    node_label: Optional[str] = None  # default: the job's
    attempts: int = 2  # how often YARN may start it; the next one adopts the running tasks. The cluster caps it
    attempts_window: Duration = Duration(3600)  # older deaths of it do not count (YARN's failures validity interval)
    docker: Optional[Docker] = None  # over the job's docker; false: on the node itself


@attrs.frozen
class ReadinessProbe:
    """How one sees that a task's program is ready for others: by one of these, looked at while it runs."""

    command: Optional[str] = None  # that ends with exit code 0, run as the task's own is
    port: Optional[int] = None  # that accepts connections on the task's node; 0: the task's own, TONY_PORT
    file: Optional[str] = None  # that is there; relative to the working directory


@attrs.frozen
class TaskSpec:
    """One task type: ``instances`` containers that run the same command, told apart by their index."""

    command: str = ""  # run by /bin/sh in the container's working directory; some frameworks have one for some roles
    instances: int = 1
    memory: Memory = Memory(2048)  # MiB, the container's limit, the executor's 60 MiB or so included
    vcores: int = 1
    gpus: int = 0  # yarn.io/gpu
    resources: dict[str, ResourceAmount] = attrs.field(factory=dict)  # others of the cluster, by YARN's names
    node_label: Optional[str] = None  # default: the job's
    placement: Optional[Placement] = None  # on which nodes, beside and apart from which others; default: anywhere
    docker: Optional[Docker] = None  # over the job's docker, key by key; false: as plain processes
    env: dict[str, str] = attrs.field(factory=dict)  # over the job's env
    secrets: list[str] = attrs.field(factory=list)  # of the job's: that only types get which name them
    role: Optional[Role] = None  # default: by the type's name
    after: dict[str, Milestone] = attrs.field(factory=dict)  # task types that must have got so far before
    ready: Optional[ReadinessProbe] = None  # for types that wait for this one to be ready
    decides: bool = True  # false: the job does not wait for workers of this type to end; their failure still counts
    wait_for_children: bool = False  # its command has ended only when all processes that it started have
    restart: Optional[RestartScope] = None  # when one of them fails; default: what the framework needs
    processes: Processes = Processes("1")  # in each container, each with a rank; gpus: one for each GPU
    min_instances: Optional[int] = None  # the least that goes on when lost ones cannot be replaced; default: all
    max_instances: Optional[int] = None  # the most that it may be resized to; default: it cannot be resized
    grow: GrowRule = GrowRule.ASKED  # spare: also by itself, to max_instances, as long as nobody else needs the room
    python_env: Optional[PythonEnv] = None  # the Python of its command; default: the job's
    files: list[Resource] = attrs.field(factory=list)  # beside the job's
    archives: list[Resource] = attrs.field(factory=list)  # beside the job's

    @property
    def process_count(self) -> int:
        """How many user processes each container runs, at least one."""
        return max(1, self.gpus if self.processes == PER_GPU else int(self.processes))

    @property
    def most_instances(self) -> int:
        """How many tasks of the type there may be at most: as many as it may be resized to."""
        return self.instances if self.max_instances is None else self.max_instances

    @property
    def least_instances(self) -> int:
        """How many tasks of the type there must be for the job to go on."""
        return self.instances if self.min_instances is None else self.min_instances


def role_of(task_type: str, task: TaskSpec) -> Role:
    """The role given, else the one that the name says (``tensorboard`` says side-car), else worker."""
    return task.role if task.role is not None else _ROLE_BY_NAME.get(task_type, Role.WORKER)


@attrs.frozen
class Timeouts:
    """Deadlines of the job, in seconds."""

    queue: Optional[Duration] = None  # wait for the whole gang's containers at most this long; default: for ever
    allocation: Duration = Duration(120)  # then a partly allocated gang gives everything back and asks again
    registration: Duration = Duration(300)  # from its launch until the executor has registered; files are copied first
    lifetime: Optional[Duration] = None  # of the whole application, YARN's application lifetime; default: unlimited
    grace: Duration = Duration(30)  # between SIGTERM and SIGKILL of a user process
    evaluator: Duration = Duration(60)  # that evaluators may go on after the last tracked task succeeded
    deadline: Optional[Moment] = None  # the application ends by then, like lifetime; default: none
    replacement: Duration = Duration(300)  # for a lost container; then it goes on smaller, or gives all back
    dependency: Optional[Duration] = None  # that a task type waits for others (after); default: for ever
    spare: Duration = Duration(300)  # of room, and no change, before a job takes what there is to spare (grow)
    stall: Optional[Duration] = None  # without a new step a tracked task has failed; default: it may take for ever
    checkpoint: Duration = Duration(60)  # for the last copy of a checkpoint once the user process has ended
    upload: Duration = Duration(1800)  # for the model and result of a process that has ended well, and for a commit


@attrs.frozen
class RestartPolicy:
    """How often, how soon and with what tasks are started again inside the job."""

    budget: int = 3  # restarts without progress, within the window
    same_failure: int = 1  # restarts after the same failure of a program without progress in between
    window: Duration = Duration(3600)
    backoff: Duration = Duration(5)  # before the second restart without progress, doubled for each further one
    max_backoff: Duration = Duration(300)
    permanent_exit_codes: list[int] = attrs.field(factory=list)  # of user processes that no restart would mend
    memory_step: Optional[Memory] = None  # more for the container after an out-of-memory kill; default: the same again
    memory_limit: Optional[Memory] = None  # that memory_step goes up to; default: twice the type's memory
    node_losses: int = 2  # containers lost on one node, after which it is avoided while others are left; 0: never


@attrs.frozen
class CheckpointSpec:
    """Copying complete checkpoints to the store while the job runs, to resume from."""

    mirror: MirrorScope = MirrorScope.AUTO
    format: CheckpointFormat = CheckpointFormat.AUTO
    keep: int = 2  # number of newest checkpoints that stay
    keep_every: Optional[int] = None  # checkpoints whose step is a multiple of this also stay; default: no others
    after_success: AfterSuccess = AfterSuccess.KEEP_LAST
    bandwidth: Optional[Memory] = None  # MiB a second that one task copies at most; default: no limit
    max_size: Optional[Memory] = None  # MiB of a task's checkpoint directory; a larger one is not stored; default: any
    exclude: list[str] = attrs.field(factory=list)  # glob patterns of paths that checkpoints leave out
    shared: bool = False  # all tasks have one directory, on a file system that all nodes have mounted

    @property
    def stored(self) -> MirrorScope:
        """The tasks whose directories are stored. The leader stores a shared directory."""
        return MirrorScope.LEADER if self.shared else self.mirror


@attrs.frozen
class ExportSpec:
    """Exports of the model on its way, which the leading task's program makes when it is asked."""

    every: Optional[int] = None  # each time that so many more checkpoints are committed; default: only on request
    keep_last: int = 3  # newest ones, on the store


@attrs.frozen
class LogSpec:
    """What a task prints, on its node."""

    max_size: Optional[Memory] = None  # MiB of its stdout and stderr together; default: the connection's, else 64


@attrs.frozen
class TensorBoardSpec:
    """A side-car of ours: TensorBoard over what tasks write into TONY_TENSORBOARD_DIR. Written as ``true``, too."""

    memory: Memory = Memory(1024)  # MiB, the container's limit
    vcores: int = 1
    node_label: Optional[str] = None  # default: the job's
    env: dict[str, str] = attrs.field(factory=dict)  # over the job's env
    docker: Optional[Docker] = None  # over the job's docker; false: on the node itself


EVERYBODY = "*"  # as the only user of an access list


@attrs.frozen
class AccessNames:
    """Users and groups, by the cluster's names for them."""

    users: list[str] = attrs.field(factory=list)  # ``*`` as the only one: everybody
    groups: list[str] = attrs.field(factory=list)


@attrs.frozen
class AclSpec:
    """Who else may look at the job, and interfere with it, beside its owner and the cluster's administrators."""

    view: AccessNames = attrs.field(factory=AccessNames)  # its page, status, logs and history
    modify: AccessNames = attrs.field(factory=AccessNames)  # may stop it too, or ask it for a checkpoint or export

    @property
    def viewers(self) -> AccessNames:
        """Who may look: also those who may interfere."""
        users = list(dict.fromkeys([*self.view.users, *self.modify.users]))
        if EVERYBODY in users:
            return AccessNames([EVERYBODY])
        return AccessNames(users, list(dict.fromkeys([*self.view.groups, *self.modify.groups])))


class InputDeal(str, Enum):
    """How the shards of an input come to the tasks."""

    STATIC = "static"  # each task has a part of its own, balanced by size
    QUEUE = "queue"  # whoever is free takes the next one; each is committed exactly once


class InputFormat(str, Enum):
    """What is in the files of an input: how they can be cut into shards, and read record by record."""

    FILES = "files"  # whatever it is: each file is a shard, and the program knows how to read it
    LINES = "lines"  # text, CSV, JSON lines: a record ends with a newline
    TFRECORD = "tfrecord"  # TensorFlow's records
    PARQUET = "parquet"  # row groups


@attrs.frozen
class InputSpec:
    """Files that are listed once and dealt to tasks in shards: files, or pieces of them. Written as a path, too."""

    paths: list[str]  # URIs or absolute paths: files, directories, or patterns with ``*``, ``?``, ``[…]``, ``**``
    deal: InputDeal = InputDeal.STATIC
    tasks: list[str] = attrs.field(factory=list)  # types that read it; default: chief and workers that have a command
    fetch: bool = False  # shards are copied to the node of their task, for programs that cannot read the store
    format: InputFormat = InputFormat.FILES
    split_size: Optional[Memory] = None  # MiB of a shard, about; files are cut where records begin; default: never
    checksum: bool = False  # the store's checksum of each file is listed with it, where it has one


class OutputCommit(str, Enum):
    """When what the tasks leave for an output appears at its path."""

    JOB = "job"  # all of it at once, when the job has succeeded
    TASK = "task"  # each task's part when that task has succeeded


class OutputLayout(str, Enum):
    """Where the files of a task are below the path of an output."""

    TASKS = "tasks"  # in a directory of the task: worker-3/
    FLAT = "flat"  # beside those of all others


@attrs.frozen
class OutputSpec:
    """A directory of the store that tasks write by way of a local one. Written as its path, too."""

    path: str  # a URI or an absolute path; what is in it appears when the job has succeeded, with ``_SUCCESS``
    tasks: list[str] = attrs.field(factory=list)  # types that write it; default: chief and workers that have a command
    commit: OutputCommit = OutputCommit.JOB
    layout: OutputLayout = OutputLayout.TASKS
    replace: bool = False  # what is there already is replaced; default: only what the same training has written


class Network(str, Enum):
    """Who can reach the ports that a job's processes listen on, by the word of somebody who has looked."""

    TRUSTED = "trusted"  # others too, all of whom may do what the job's user may
    ISOLATED = "isolated"  # nobody but the job's own processes: Docker networks, firewalls, a cluster of one's own


@attrs.frozen
class JobSpec:
    """One distributed training job."""

    framework: str  # tensorflow | pytorch | jax | xgboost | ray | horovod | mpi | mxnet | generic | standalone
    tasks: dict[str, TaskSpec]  # by type: chief, worker, ps, evaluator, or any name
    name: str = "training"
    preset: Optional[str] = None  # a part of a job that the connection has by this name, under this one; default: none
    success: Optional[SuccessRule] = None  # which tasks must succeed; default: what the framework needs
    start: StartRule = StartRule.GANG  # when tasks begin: all together, or each as soon as its container is there
    tolerated_failures: Tolerance = NO_TOLERANCE  # workers that may fail for good while the job goes on; as 3 or 5%
    queue: Optional[str] = None  # default: the connection's, else YARN's own placement
    priority: Optional[int] = None
    node_label: Optional[str] = None
    tags: list[str] = attrs.field(factory=list)  # YARN application tags, beside our own
    am: AmSpec = attrs.field(factory=AmSpec)
    files: list[Resource] = attrs.field(factory=list)  # a directory is taken with all that is below it
    archives: list[Resource] = attrs.field(factory=list)  # unpacked into a directory of that name
    python_env: Optional[PythonEnv] = None  # a directory on the nodes, an archive, a PEX or wheels: see python_env.py
    docker: Optional[Docker] = None  # the image of all containers, the master's too; default: plain processes
    env: dict[str, str] = attrs.field(factory=dict)  # of the user processes
    secrets: list[str] = attrs.field(factory=list)  # names only; the values travel in the containers' credentials
    acls: AclSpec = attrs.field(factory=AclSpec)  # who else may look at it, and interfere with it
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    windows: Optional[Windows] = None  # when it may have containers; default: at any time
    restart: RestartPolicy = attrs.field(factory=RestartPolicy)
    checkpoint: CheckpointSpec = attrs.field(factory=CheckpointSpec)
    export: ExportSpec = attrs.field(factory=ExportSpec)
    logs: LogSpec = attrs.field(factory=LogSpec)
    hadoop: bool = False  # user processes get the HDFS tokens, configuration and class path of Hadoop
    tensorboard: Optional[TensorBoardSpec] = None  # true: with its defaults; default, and false: none
    inputs: dict[str, InputSpec] = attrs.field(factory=dict)  # shards that are dealt to the tasks, by name
    outputs: dict[str, OutputSpec] = attrs.field(factory=dict)  # directories that the tasks write, by name
    network: Optional[Network] = None  # who reaches the processes' ports; default: the connection's, else a warning
    port_range: PortRange = PortRange(20000, 31999)  # below Linux's range for outgoing connections, which would collide

    @property
    def most_failures(self) -> int:
        """How many workers may fail for good: ``tolerated_failures``, a share of all workers rounded down."""
        share, percent, _ = self.tolerated_failures.partition("%")
        if not percent:
            return int(share)
        workers = sum(task.instances for name, task in self.tasks.items() if self.role(name) is Role.WORKER)
        return int(workers * Fraction(share) / 100)

    def waits_for(self, task_type: str) -> dict[str, Milestone]:
        """The task types that one waits for, and how far they must be: its ``after``, and the type ``prepare``."""
        everybody = {PREPARE: Milestone.SUCCEEDED} if PREPARE in self.tasks and task_type != PREPARE else {}
        return {**everybody, **self.tasks[task_type].after}

    def at_once(self, task_type: str) -> int:
        """How many containers of a type must be there at the same time for the job to go on."""
        task = self.tasks[task_type]
        role = self.role(task_type)
        if self.start is StartRule.FIRST_COME and (role.is_tracked or role is Role.ONCE):
            return min(1, task.instances)
        return task.least_instances

    def placed_by_rules(self, task_type: str) -> bool:
        """Whether YARN places a type's containers by rules, or by its containers those of other types.

        Raises ValueError where a rule names what is no tag.
        """
        own = self.tasks[task_type].placement
        if own is not None and own.by_rules:
            return True
        tags = set(own_tags(task_type, own))
        rules = [task.placement for task in self.tasks.values() if task.placement is not None]
        return any(target.own and target.tag in tags for placement in rules for target in targets(placement))

    def secrets_withheld(self, task_type: str) -> set[str]:
        """The names of the secrets that a task type does not get: other types name them, and it does not."""
        return {name for task in self.tasks.values() for name in task.secrets} - {*self.tasks[task_type].secrets}

    def python_env_of(self, task_type: str) -> Optional[PythonEnv]:
        """The Python environment of a task type: its own, or else the job's. None: the nodes' own Python."""
        own = self.tasks[task_type].python_env
        return self.python_env if own is None else own

    def role(self, task_type: str) -> Role:
        """The role of a task type; raises KeyError for one that is not in ``tasks``."""
        return role_of(task_type, self.tasks[task_type])

    def readers(self, name: str) -> list[str]:
        """The task types that an input is dealt to, as specified; raises KeyError for one that is not in ``inputs``.

        Types that run their framework's command, and no program of the job's, read nothing unless they are named.
        """
        return self._those_of(self.inputs[name].tasks)

    def writers(self, name: str) -> list[str]:
        """The task types that write an output, as specified; raises KeyError for one that is not in ``outputs``."""
        return self._those_of(self.outputs[name].tasks)

    def _those_of(self, named: list[str]) -> list[str]:
        able = [each for each, task in self.tasks.items() if self.role(each).is_tracked and task.command]
        return [each for each in self.tasks if each in (named or able)]

    @property
    def size(self) -> int:
        """How many tasks the job has, or may be resized to."""
        return sum(task.most_instances for task in self.tasks.values())

    @property
    def am_memory(self) -> Memory:
        """The memory of the application master's container.

        It is as given, else what so many tasks need, and half as much again.
        """
        if self.am.memory is not None:
            return self.am.memory
        return Memory(_AM_MEMORY + -(-_AM_MEMORY_PER_THOUSAND * max(0, self.size - 1000) // 1000))

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every task type, as specified."""
        return {task_type: self.role(task_type) for task_type in self.tasks}
