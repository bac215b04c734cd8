"""Framework interface, task addresses and environments of user processes, and the registry of frameworks.

A framework defines how tasks find each other, which task types decide the job's end, and which tasks restart after a
failure. The registry has built-in frameworks, and plugins that other packages provide by entry points.

A container may run several processes, so the addresses of processes are derived from the addresses of tasks.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.contract import MAX_ENV_STRING
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.container_content import env_by_path
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role, TaskSpec, in_cluster, ranks, role_of
from tony_provider.runtime.jobspec.problems import Problem, child, item

if TYPE_CHECKING:
    from importlib import metadata

TRACKED = frozenset({Role.CHIEF, Role.WORKER})
"""Roles that the job waits for, see ``Role.is_tracked``."""

MAIN_PORT = "main"
"""Name of the main port: every task has it, and the cluster spec contains it."""

PREFLIGHT_PORT = "preflight"
"""Name of the port for messages between executors before the user processes start."""


def port_of_process(name: str, local_rank: int) -> str:
    """Return the name of a process's own port. Each process of a container has all ports that the framework names."""
    return f"{name}.{local_rank}" if local_rank else name


@attrs.frozen
class TaskAddress:
    """Address and named ports of one task of a generation, or of one process if a task runs several."""

    type: str
    index: int  # index among the tasks, or processes, of its type
    role: Role
    host: str = ""  # host name or address; empty if the task has not started or has ended
    ports: dict[str, int] = attrs.field(factory=dict)  # by the names that Framework.ports returned
    local_rank: int = 0  # index of the process in its container
    local_world_size: int = 1  # number of processes in its container

    @property
    def task_index(self) -> int:
        """The index of the task, also if this is the address of a process."""
        return self.index // self.local_world_size

    @property
    def main(self) -> str:
        """The main address ``host:port``, with an IPv6 address in brackets; empty if the task has no address."""
        return str(Address(self.host, self.ports[MAIN_PORT])) if self.host else ""


@attrs.frozen
class ClusterSpec:
    """Addresses of all tasks, or all processes, of one generation, in the order of the job's types and then by index.

    Tasks without an address are included, so that all tasks compute the same ranks.
    """

    generation: int
    tasks: tuple[TaskAddress, ...]

    def task(self, task_type: str, index: int) -> TaskAddress:
        """Return the address of one task. Raises LookupError if the task does not exist."""
        for task in self.tasks:
            if (task.type, task.index) == (task_type, index):
                return task
        raise LookupError(f"no task {task_type}:{index} in generation {self.generation}")


@attrs.frozen
class HelperProcess:
    """A process of the runtime on which user processes depend, such as a rendezvous server.

    The executor starts the helper with one user process, in the environment of that process, and stops it with the user
    processes. The task fails if the helper ends earlier with a nonzero exit code or by a signal.
    """

    name: str  # name shown in messages, such as "Horovod's rendezvous"
    command: str  # for /bin/sh; its last command is an exec, so that the helper replaces the shell


@attrs.frozen
class TaskEnvironment:
    """Variables of one user process, and the files that its working directory needs before the start."""

    env: dict[str, str]
    files: dict[str, str] = attrs.field(factory=dict)  # name in the working directory -> text
    paths: dict[str, str] = attrs.field(factory=dict)  # variable for a file's path -> name of the file in ``files``
    before: str = ""  # shell commands that run before the user's command and leave no process running
    helpers: tuple[HelperProcess, ...] = ()  # run concurrently with the process

    def __add__(self, other: TaskEnvironment) -> TaskEnvironment:
        """Return both environments combined; values of ``other`` win."""
        return TaskEnvironment(
            {**self.env, **other.env},
            {**self.files, **other.files},
            {**self.paths, **other.paths},
            other.before or self.before,
            (*self.helpers, *other.helpers),
        )

    def placed(self, directory: str) -> TaskEnvironment:
        """Return a copy with the variables of ``paths`` in ``env``: the paths that the files have in ``directory``."""
        located = {variable: str(Path(directory, name)) for variable, name in self.paths.items()}
        return attrs.evolve(self, env={**self.env, **located}, paths={})


def with_file(variable: str, text: str, path_variable: str, file_name: str) -> TaskEnvironment:
    """Return an environment with a text in a file, and also in ``variable`` if the text fits into a variable."""
    env = {variable: text} if fits_variable(variable, text) else {}
    return TaskEnvironment(env, {file_name: text}, {path_variable: file_name})


def fits_variable(variable: str, text: str) -> bool:
    """Return whether Linux can start a process with this variable."""
    return len(variable.encode()) + len(text.encode()) + 2 <= MAX_ENV_STRING


class Framework(ABC):
    """Interface of a framework: how tasks find each other, and what their failures and ends mean for the job."""

    name: str
    made_variables: frozenset[str] = frozenset()
    """Variables that the framework derives from the cluster; a job must not set them."""
    local_variables: frozenset[str] = frozenset()
    """Variables that differ between processes of one container; jobs with several processes must not set them."""
    only_device: Mapping[str, str] = MappingProxyType({})
    """Variables of a process whose container has several GPUs, but which sees only one of them, by the number 0."""

    secret_variables: frozenset[str] = frozenset()
    """Variables with a secret of the job, the same in all tasks of its cluster and unknown elsewhere."""

    debug_files: Mapping[str, str] = MappingProxyType({})
    """Variables with the path of a debug file of the library, and its name in TONY_DEBUG_DIR. A job may set others."""

    interface_variables: frozenset[str] = frozenset()
    """Variables for the one network interface to listen on: that of the address by which others know the node."""

    exposed: str = ""
    """Risk if others reach the framework's unauthenticated ports, for messages; empty if no risk is known."""

    required_roles: Sequence[tuple[Role, str]] = ()
    """Roles that a job must have, each with the problem of a job without it, which follows the framework's name."""

    forbidden_roles: Sequence[tuple[Role, str]] = ()
    """Roles that no task type may have, each with the problem, which follows the framework's name."""

    decisive_roles: frozenset[Role] = frozenset()
    """Roles whose tasks must all succeed, see ``decisive``. Empty for the default."""

    starts_alone: bool = False
    """Whether a process can begin before the others listen at their addresses."""

    one_process: bool = False
    """Whether no container runs several processes, see ``several_processes``."""

    def problems(self, job: JobSpec) -> list[Problem]:
        """Return the parts of the job that this framework cannot run; empty if it can run the job."""
        roles = job.roles
        missing = [text for role, text in self.required_roles if role not in roles.values()]
        surplus = [(name, role, text) for name, role in roles.items() for r, text in self.forbidden_roles if r is role]
        return [
            *self._made_variables_given(job),
            *(Problem("tasks", sorted(roles), f"{self.name} {text}") for text in missing),
            *(Problem(child("tasks", name), role.value, f"{self.name} {text}") for name, role, text in surplus),
        ]

    def _made_variables_given(self, job: JobSpec) -> list[Problem]:
        several = any(task.process_count > 1 for task in job.tasks.values())
        made = self.made_variables | (self.local_variables if several else frozenset())
        given = {
            child(path, name): value
            for path, env in env_by_path(job).items()
            for name, value in env.items()
            if name in made
        }
        given.update({item("secrets", index): name for index, name in enumerate(job.secrets) if name in made})
        return [Problem(path, value, "is set by the framework; leave it out") for path, value in given.items()]

    def default_command(self, role: Role) -> str:
        """Return the default command of task types of this role; empty if the job must specify a command."""
        return ""

    def ports(self, task_type: str, role: Role) -> Sequence[str]:
        """Return the names of the ports that a process of this type listens on, the main port first."""
        return (MAIN_PORT,)

    def shares_ports(self, role: Role) -> bool:
        """Return whether the executor keeps reserved ports bound while the program runs.

        This is possible if the task's server binds the ports with SO_REUSEPORT. Otherwise the executor releases them
        just before exec.
        """
        return False

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """Return the task types that must all succeed for the job to succeed. The other tasks are then stopped.

        The default is the chief and all workers. In a job with a chief and parameter servers, only the chief must
        succeed, because the workers wait for work without end.
        """
        decisive, every = self.decisive_roles, set(job.roles.values())
        if not decisive:
            decisive = frozenset({Role.CHIEF}) if {Role.CHIEF, Role.PS} <= every else TRACKED
        return [name for name, role in job.roles.items() if role in decisive]

    def scope(self, role: Role) -> RestartScope:
        """Return which tasks restart if a task of this role fails, unless its type sets ``restart``.

        The default is the whole gang: collective operations and connections do not survive the loss of a member.
        """
        return RestartScope.GANG if in_cluster(role) else RestartScope.TASK

    @property
    def first_come(self) -> bool:
        """Whether tasks can start before the others have containers; see the job's key ``start``."""
        return False

    def elastic(self, role: Role) -> bool:
        """Return whether a gang can restart with fewer tasks of this role."""
        return False

    def several_processes(self, role: Role) -> bool:
        """Return whether a container of this role may run several processes, each a cluster member with its own rank.

        The default is True for chief and workers. A parameter server, or a task outside the cluster, has one process.
        """
        return role.is_tracked and not self.one_process

    @abstractmethod
    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        """Return the environment in which one user process finds the others. The executor calls this.

        ``cluster`` has an address for each process. ``index`` is the process's index among those of its type, which
        equals the task's index if each task has one process.
        """


PYTHON_COMMAND = '"$(command -v python || command -v python3)"'  # on Debian, only python3 exists


def run_module(arguments: str) -> str:
    """Return the shell command that executes a module of tony_sdk's folder with these arguments."""
    return f"exec {PYTHON_COMMAND} -m {arguments}"


def wait_until_reachable(address: Address) -> str:
    """Return a shell command that waits until a process listens at the address. On timeout, it exits with a message."""
    return f"{PYTHON_COMMAND} -m tony_wait {address.host} {address.port} || exit"


GROUP = "tony_provider.frameworks"


@cache
def entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Return the plugin entry points, sorted by name. Cached, because the search reads all installed distributions."""
    from importlib import metadata  # needs hundreds of kilobytes in each container, and few jobs use it

    if sys.version_info >= (3, 10):
        found = list(metadata.entry_points(group=GROUP))
    else:
        found = list(metadata.entry_points().get(GROUP, ()))
    return tuple(sorted(set(found), key=lambda point: point.name))


def plugin_names() -> tuple[str, ...]:
    """Return the names of the frameworks from other packages."""
    return tuple(dict.fromkeys(point.name for point in entry_points()))


@cache
def load_plugin(name: str) -> Optional[Framework]:
    """Return the plugin framework with this name, or None if no package has it.

    Raises LookupError with the reason if the plugin cannot be loaded.
    """
    point = next((point for point in entry_points() if point.name == name), None)
    if point is None:
        return None
    try:
        framework = point.load()()
    except Exception as error:  # a plugin may raise anything
        raise LookupError(f"the framework {name!r} ({point.value}) cannot be loaded: {error!r}") from error
    if not isinstance(framework, Framework):
        raise LookupError(f"the framework {name!r} ({point.value}) is no Framework of {Framework.__module__}")  # noqa: TRY004
    return framework


# Class of each built-in framework, by the name of the framework and of its module. A process loads only the framework
# of its job.
_OURS = {
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "jax": "Jax",
    "xgboost": "XGBoost",
    "ray": "Ray",
    "horovod": "Horovod",
    "mpi": "MPI",
    "mxnet": "MXNet",
    "generic": "Generic",
    "standalone": "Standalone",
}


@cache
def _load(name: str) -> Framework:
    framework: Framework = getattr(import_module(f"{__package__}.{name}"), _OURS[name])()
    return framework


class UnknownFrameworkError(LookupError):
    """No framework has this name."""


def framework_names() -> tuple[str, ...]:
    """Return the names of all frameworks: the possible values of a job's ``framework``."""
    return (*_OURS, *(name for name in plugin_names() if name not in _OURS))


def get_framework(name: str) -> Framework:
    """Return the framework with this name.

    Raises UnknownFrameworkError, which lists the known names, or LookupError if a plugin cannot be loaded.
    """
    if name in _OURS:
        return _load(name)
    found = load_plugin(name)
    if found is None:
        raise UnknownFrameworkError(f"no framework {name!r}; the frameworks are {', '.join(framework_names())}")
    return found


def has_default_command(framework: object, task_type: str, role: object = None) -> bool:
    """Return whether the framework runs its own command in tasks of this type, such as a node of Ray.

    Without ``role``, the name of the task type decides. Unknown frameworks and roles have no command.
    """
    try:
        found = Role(role) if role else role_of(task_type, TaskSpec())
        return bool(get_framework(str(framework)).default_command(found))
    except (LookupError, ValueError):
        return False


def by_process(job: JobSpec, cluster: ClusterSpec) -> ClusterSpec:
    """Return the cluster with one address for each process, in the order of the tasks and then by local rank.

    The index of a process counts all processes of its type, so that processes get ranks in the same way as tasks.
    """
    if all(job.tasks[task.type].process_count == 1 for task in cluster.tasks):
        return cluster
    return attrs.evolve(cluster, tasks=tuple(each for task in cluster.tasks for each in _processes(job, task)))


def process_index(job: JobSpec, task_type: str, index: int, local_rank: int) -> int:
    """Return the index of a process among those of its type; ``index`` is the task's index."""
    return index * job.tasks[task_type].process_count + local_rank


def _processes(job: JobSpec, task: TaskAddress) -> Iterator[TaskAddress]:
    names = get_framework(job.framework).ports(task.type, task.role)
    count = job.tasks[task.type].process_count
    for local_rank in range(count):
        yield TaskAddress(
            type=task.type,
            index=process_index(job, task.type, task.index, local_rank),
            role=task.role,
            host=task.host,
            ports={name: task.ports[port_of_process(name, local_rank)] for name in names} if task.host else {},
            local_rank=local_rank,
            local_world_size=count,
        )


VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def task_environment(
    job: JobSpec, cluster: ClusterSpec, task_type: str, index: int, *, local_rank: int = 0, directory: str = ""
) -> TaskEnvironment:
    """Return all variables and files by which a user process finds the others: the common ones and the framework's.

    ``cluster`` has the tasks' addresses. The caller writes the files in ``directory``; if it is empty, the variables
    have paths relative to the working directory. The job's own ``env`` is not included. Raises LookupError if the
    cluster lacks the task.
    """
    everybody, own = by_process(job, cluster), process_index(job, task_type, index, local_rank)
    common = cluster_environment(job, everybody, task_type, own)
    return (common + get_framework(job.framework).environment(job, everybody, task_type, own)).placed(directory)


def cluster_environment(job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
    """Return the part of a process's environment that does not depend on the framework.

    The arguments are those of ``Framework.environment``. Evaluators and sidecars get no rank, but the addresses.
    """
    task = cluster.task(task_type, index)
    rank_of = ranks(cluster.tasks)
    env = {
        contract.ENV_JOB_NAME: job.name,
        contract.ENV_TASK_TYPE: task_type,
        contract.ENV_TASK_INDEX: str(task.task_index),
        contract.ENV_LOCAL_RANK: str(task.local_rank),
        contract.ENV_LOCAL_WORLD_SIZE: str(task.local_world_size),
        contract.ENV_WORLD_SIZE: str(len(rank_of)),
        contract.ENV_GENERATION: str(cluster.generation),
        contract.ENV_PORT: str(task.ports[MAIN_PORT]),
    }
    first = cluster.task(*min(rank_of, key=rank_of.__getitem__)) if rank_of else None
    if first and first.main:
        env[contract.ENV_RENDEZVOUS] = first.main
    if in_cluster(task.role):
        env[contract.ENV_RANK] = str(rank_of[task_type, index])
    spec = job.tasks[task_type]
    # Other resources may be GPUs by another name, such as nvidia.com/gpu.
    if spec.gpus == 0 and not spec.resources and VISIBLE_DEVICES not in {**job.env, **spec.env}:
        env[VISIBLE_DEVICES] = "-1"  # nodes without isolation show every GPU to every container
    listed = with_file(
        contract.ENV_CLUSTER_SPEC, cluster_json(cluster), contract.ENV_CLUSTER_SPEC_FILE, contract.CLUSTER_SPEC_FILE
    )
    return TaskEnvironment(env) + listed


def cluster_json(cluster: ClusterSpec) -> str:
    """Return the addresses of chief, workers and parameter servers as JSON: ``{type: ["host:port", …]}``.

    Types are in the job's order, addresses in the order of the index. A task that does not run has an empty text.
    """
    by_type: dict[str, list[str]] = {}
    for task in cluster.tasks:
        if in_cluster(task.role):
            by_type.setdefault(task.type, []).append(task.main)
    return json.dumps(by_type, separators=(",", ":"))
